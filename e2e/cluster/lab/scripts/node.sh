#!/bin/bash
# node.sh N IP: a node's pid 1 in its own root: imports images, then runs the daemons.
N=$1 IP=$2
export PATH=/opt/cluster/bin:/usr/sbin:/usr/bin HOME=/root
LOGS=/var/log PIDS=/run/daemons CONTROL=/run/control
mkdir -p $PIDS
. /opt/cluster/supervise.sh
daemon containerd containerd --config /etc/containerd/config.toml
daemon kube-proxy kube kube-proxy --config /etc/kubernetes/proxy.yaml
for _ in {1..300}; do
  ctr version >/dev/null 2>&1 && break
  sleep 0.1
done
imports=()
for f in /opt/cluster/images/*.tar; do
  done=/var/lib/containerd/imported-$(stat -c '%Y-%s' "$f")-${f##*/}
  [ -e "$done" ] && continue # a node that comes back has its images
  { ctr -n k8s.io images import --local "$f" >>$LOGS/images.log 2>&1 && : >"$done"; } &
  imports+=($!)
done
[ ${#imports[@]} -eq 0 ] || wait "${imports[@]}"
daemon kubelet kube kubelet --config /etc/kubernetes/kubelet.yaml --kubeconfig /etc/kubernetes/kubelet.conf \
  --hostname-override "n$N" --node-ip "$IP" --root-dir /var/lib/kubelet
supervise
