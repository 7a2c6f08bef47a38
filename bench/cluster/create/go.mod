module kubevirt-webhook.github.io/bench/cluster/create

go 1.26.0
