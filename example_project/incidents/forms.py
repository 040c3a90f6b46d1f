"""A person's decision on a fix."""

from typing import Any

from django import forms


class DecisionForm(forms.Form):
    """``shown`` is the hash of what the person saw, so that nobody decides on something else."""

    wait = forms.IntegerField(min_value=1, widget=forms.HiddenInput)
    shown = forms.CharField(max_length=64, widget=forms.HiddenInput)
    decision = forms.ChoiceField(choices=[("approve", "Approve"), ("reject", "Reject")])
    reason = forms.CharField(max_length=1000, required=False, widget=forms.Textarea(attrs={"rows": 2}))

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("decision") == "reject" and not cleaned.get("reason"):
            self.add_error("reason", "Say why, so that the next fix is a better one.")
        return cleaned
