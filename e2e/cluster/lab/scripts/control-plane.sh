#!/bin/bash
# control-plane.sh RUN: pid 1 of the control plane, in the hub's network namespace and in pid and
# mount namespaces of its own.
RUN=$1
. "$RUN/cluster.env"
mount -t proc proc /proc
KUBE=$RUN/bin/kube PKI=$RUN/pki CONF=$RUN/kubeconfig
LOGS=$RUN/logs PIDS=$RUN/daemons CONTROL=$RUN/control
mkdir -p "$RUN/etcd" "$PIDS"
. "$RUN/scripts/supervise.sh"
# What accounts of the driver's namespace ask for, and what they are answered.
cat >"$RUN/audit.yaml" <<Y
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts:kube-system"], omitManagedFields: true}
  - {level: None}
Y
# This etcd never loses power, and a test must not wait for its disk.
daemon etcd "$KUBE" etcd --name one --data-dir "$RUN/etcd" --unsafe-no-fsync --log-level warn \
  --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
  --initial-cluster one=http://127.0.0.1:2380
daemon apiserver "$KUBE" kube-apiserver --etcd-servers http://127.0.0.1:2379 \
  --advertise-address "$HUB_IP" --bind-address 0.0.0.0 --secure-port 6443 \
  --tls-cert-file "$PKI/apiserver.crt" --tls-private-key-file "$PKI/apiserver.key" --client-ca-file "$PKI/ca.crt" \
  --kubelet-client-certificate "$PKI/apiserver-kubelet.crt" --kubelet-client-key "$PKI/apiserver-kubelet.key" \
  --kubelet-certificate-authority "$PKI/ca.crt" --kubelet-preferred-address-types InternalIP \
  --service-cluster-ip-range "$SERVICE_CIDR" --service-account-issuer https://kubernetes.default.svc.cluster.local \
  --service-account-key-file "$PKI/sa.pub" --service-account-signing-key-file "$PKI/sa.key" \
  --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged=true \
  --endpoint-reconciler-type lease --profiling=false \
  --audit-policy-file "$RUN/audit.yaml" --audit-log-path "$LOGS/audit.log" --audit-log-maxsize 1000
daemon controller-manager "$KUBE" kube-controller-manager --kubeconfig "$CONF/controller-manager.conf" \
  --leader-elect=false --bind-address 127.0.0.1 --use-service-account-credentials --root-ca-file "$PKI/ca.crt" \
  --service-account-private-key-file "$PKI/sa.key" --cluster-signing-cert-file "$PKI/ca.crt" \
  --cluster-signing-key-file "$PKI/ca.key" --allocate-node-cidrs=false \
  --node-monitor-period 2s --node-monitor-grace-period "$NODE_GRACE"
daemon scheduler "$KUBE" kube-scheduler --kubeconfig "$CONF/scheduler.conf" --leader-elect=false --bind-address 127.0.0.1
supervise
