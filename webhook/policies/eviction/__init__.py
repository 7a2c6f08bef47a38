"""The eviction policy: the descheduler's evictions of VMs, denied where they could only fail, and paced.

virt-api answers the eviction of a VM's pod by marking the VM for evacuation, and a VM that no node can take is then
migrated in vain again and again. Validating webhooks run concurrently, so one here could not keep virt-api from
marking; a mutating one, which runs before, can (`pods`). What paces evictions is derived from the cluster's migrations
and the review's time alone, so that every replica, also one that has just started, decides alike.
"""
