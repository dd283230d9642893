#!/bin/bash
# node-root.sh RUN N IP POD_CIDR: pid 1 of a node, in network, mount, uts, ipc, pid and cgroup
# namespaces of its own. It makes the node's root, moves into it and becomes node.sh.
set -e
RUN=$1 N=$2 IP=$3 POD_CIDR=$4
. "$RUN/cluster.env"
NAME=n$N ROOT=$RUN/nodes/n$N/root
hostname "$NAME"
mount --make-rprivate /

# The machine's /usr, read-only; all else is the node's own, and is still there after a power cut.
mkdir -p "$ROOT"
mount --bind "$ROOT" "$ROOT"
mount --make-private "$ROOT" # pivot_root asks for that
cd "$ROOT"
mkdir -p usr etc dev proc sys run tmp root mnt old var/log var/tmp var/lib/{kubelet,containerd} \
  opt/{cni/bin,cluster/bin,cluster/images} etc/{cni/net.d,containerd,kubernetes,ssl}
chmod 1777 tmp var/tmp
for d in bin sbin lib lib64; do ln -sfn usr/$d $d; done
ln -sfn /run var/run
readonly_bind() {
  mount --bind "$1" "$2"
  mount -o remount,bind,ro "$2"
}
readonly_bind /usr usr
readonly_bind "$RUN/bin" opt/cluster/bin
readonly_bind "$RUN/cni" opt/cni/bin
readonly_bind "$RUN/images" opt/cluster/images
cp "$RUN/scripts/node.sh" "$RUN/scripts/supervise.sh" opt/cluster/
cp -a /etc/{passwd,group,nsswitch.conf,protocols,services,ld.so.cache,alternatives} etc/ 2>/dev/null || true
echo "$NAME" >etc/hostname
printf '127.0.0.1 localhost\n%s %s\n' "$IP" "$NAME" >etc/hosts
: >etc/resolv.conf
printf '%032x\n' $((0x74616b0000 + N)) >etc/machine-id # the kubelet reports it
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p run/lock run/sysctl
mount --rbind /dev dev
mount --make-rprivate dev

# Mounted in the node's cgroup namespace: kubelet and runc see the node's own cgroup as the root.
if [ "$CGROUP_VERSION" = 2 ]; then
  mount -t cgroup2 cgroup2 sys/fs/cgroup
  # A cgroup that has processes can't give controllers to those below it. The one that started this is taken out from outside.
  mkdir -p sys/fs/cgroup/init
  echo 1 >sys/fs/cgroup/init/cgroup.procs
  for _ in {1..100}; do
    [ -n "$(cat sys/fs/cgroup/cgroup.procs)" ] || break
    sleep 0.1
  done
  for c in $(cat sys/fs/cgroup/cgroup.controllers); do echo "+$c" >sys/fs/cgroup/cgroup.subtree_control || true; done
else
  mount -t tmpfs -o mode=755 cgroup sys/fs/cgroup
  for h in $CGROUP_HIERARCHIES; do
    mkdir "sys/fs/cgroup/$h"
    if [ "$h" = systemd ]; then o=none,name=systemd; else o=$h; fi
    mount -t cgroup -o "$o" cgroup "sys/fs/cgroup/$h"
  done
fi

# The kubelet insists on some sysctls of the whole machine: it is shown files that have them.
show_sysctl() {
  echo "$2" >"run/sysctl/${1##*/}"
  mount --bind "run/sysctl/${1##*/}" "proc/sys/$1"
}
show_sysctl vm/overcommit_memory 1
show_sysctl vm/panic_on_oom 0
show_sysctl kernel/panic 10
show_sysctl kernel/panic_on_oops 1

cp "$RUN/pki/ca.crt" "$RUN/pki/$NAME-serving.crt" "$RUN/pki/$NAME-serving.key" etc/kubernetes/
cp "$RUN/kubeconfig/$NAME.conf" etc/kubernetes/kubelet.conf
cp "$RUN/kubeconfig/proxy.conf" etc/kubernetes/proxy.conf
# No masquerading: every node has routes to all Pods. Addresses in use are forgotten at boot.
cat >etc/cni/net.d/10-bridge.conflist <<Y
{"cniVersion": "1.0.0", "name": "cluster", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "$POD_CIDR"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}, "backend": "nftables"}]}
Y
# restrict_oom_score_adj: without CAP_SYS_RESOURCE no process's oom_score_adj can be lowered, and
# containerd would start no Pod.
cat >etc/containerd/config.toml <<Y
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.blockfile"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "$WORKLOAD_IMAGE"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/opt/cni/bin"]
conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "/usr/sbin/runc"
SystemdCgroup = false
Y
cat >etc/kubernetes/kubelet.yaml <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/kubernetes/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: /etc/kubernetes/$NAME-serving.crt
tlsPrivateKeyFile: /etc/kubernetes/$NAME-serving.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /
failCgroupV1: false
failSwapOn: false
protectKernelDefaults: true
clusterDomain: cluster.local
clusterDNS: ["$DNS_IP"]
resolvConf: /etc/resolv.conf
podCIDR: $POD_CIDR
nodeStatusUpdateFrequency: 3s
nodeStatusReportFrequency: 1m
nodeLeaseDurationSeconds: 10
syncFrequency: 10s
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: 50Mi, nodefs.inodesFree: "1%"}
imageGCHighThresholdPercent: 100
healthzBindAddress: 127.0.0.1
registerNode: true
Y
# Zeros: kube-proxy then leaves the machine's connection tracking alone.
cat >etc/kubernetes/proxy.yaml <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.244.0.0/16
hostnameOverride: $NAME
clientConnection: {kubeconfig: /etc/kubernetes/proxy.conf}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
Y

# pivot_root, not chroot: runc pivots every container, which fails below a chroot.
pivot_root . old
cd /
umount -l /old
rmdir /old
mount --make-rshared / # Bidirectional mount propagation asks for it
exec /bin/bash /opt/cluster/node.sh "$N" "$IP"
