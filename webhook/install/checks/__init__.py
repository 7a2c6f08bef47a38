"""What `kubevirt-webhook doctor` looks at: a module a check, a coroutine from an installation to findings."""
