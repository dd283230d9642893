//go:build e2e

package cluster

import (
	"fmt"
	"strings"

	"tak-os.org/tak-replicated/e2e/cluster/lab"
)

// class is a StorageClass of the replicated driver.
func class(name string, replicas int, reclaim string) string {
	return fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: csi.replicated.tak-os.org
reclaimPolicy: %s
volumeBindingMode: Immediate
parameters: {replicas: "%d", backingStorageClass: tak-local}
---
`, name, reclaim, replicas)
}

// claim is a claim for 64 MiB.
func claim(ns, name, class, mode string, annotations ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: %s, annotations: {%s}}
spec:
  storageClassName: %s
  accessModes: [%s]
  resources: {requests: {storage: 64Mi}}
---
`, name, ns, strings.Join(annotations, ", "), class, mode)
}

// pod runs the workload program with a claim at /data. Without a node the scheduler chooses one.
func pod(ns, name, claim, node string, args ...string) string {
	if len(args) == 0 {
		args = []string{"pause"}
	}
	where := ""
	if node != "" {
		where = "nodeName: " + node
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: %s, set: workload}}
spec:
  %s
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  tolerations: [{operator: Exists}]
  containers:
    - name: workload
      image: %s
      imagePullPolicy: IfNotPresent
      args: [%s]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
---
`, name, ns, name, where, lab.WorkloadImage, strings.Join(args, ", "), claim)
}
