"""The page for admins: what the policies did and why, health over time, and where a VM can migrate to."""
