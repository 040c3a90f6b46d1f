"""The leased row: one protocol of claim, renew, release, reap and fence for every table that is worked on."""
