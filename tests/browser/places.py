"""Addresses of the operator's pages."""

from __future__ import annotations

from typing import Any

from django.urls import reverse


def listed(model: str) -> str:
    """The page of a whole model: ``job``, ``runningjob``, ``worker``, ``overview``…"""
    return reverse(f"admin:pgjobs_{model}_changelist")


def page_of(row: Any, model: str = "") -> str:
    """The page of one row, or of the row of ``model`` with that id."""
    return reverse(f"admin:pgjobs_{model or row._meta.model_name}_change", args=[getattr(row, "pk", row)])
