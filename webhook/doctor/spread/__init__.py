"""Where kube-scheduler puts virtual machines, as far as its scores of load, images and topology say."""
