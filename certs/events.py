"""The events that a rotation writes to the log; tests and dashboards look for them."""

from __future__ import annotations

from typing import Final


class RotationEvent:
    """The events in the log, as they are written."""

    RETRYING: Final = "certificate rotation failed; retrying"
    CONFIGURATIONS_MISSING: Final = "webhook configurations do not exist yet; certificates are not published to them"
    MISSING: Final = "CA Secret is missing; creating it again, the serving certificate does not change"
    INVALID: Final = "CA Secret is invalid; repairing it, the serving certificate does not change"
    LEAF_ISSUED: Final = "serving certificate issued"
    BUNDLES_WRITTEN: Final = "caBundles updated"
    CA_CREATED: Final = "new CA created; it is published in the caBundles before it signs"
    CA_PROMOTED: Final = "new CA is in every caBundle; it signs from now on"
    CAS_REMOVED: Final = "expired CAs are removed from the caBundles"
