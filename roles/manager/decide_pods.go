package manager

import (
	"context"
	"fmt"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/worker"
)

// workerMetricsPort is where a worker Pod serves metrics and health.
const workerMetricsPort = 9814

// podFor makes a replica's worker Pod (D6). Once the volume has had its quorum,
// Pods that may initialise an empty folder are replaced one by one by such that
// may not: then lost state is noticed (C6).
func podFor(o *observed, s settings, p *plan, r *api.ReplicaSpec) {
	name := api.ReplicaName(o.v.Name, r.Index)
	pod, ok := o.pods[name]
	bootstrap := !p.is(api.ConditionProvisioned)
	switch {
	case !ok:
		if s.workerImage == "" {
			p.tell(o, true, "NoWorkerImage", "volumes of the pod runtime need --worker-image at the manager")
			return
		}
		if c, made := o.claim(r); !made || !c.Bound {
			return // the kubelet looks for an unbound claim again only after a while
		}
		w := workerPod(o.v, r, s, bootstrap)
		p.add(func(ctx context.Context, m *manager) error { return m.kube.CreateWorkerPod(ctx, w) }, "create pod %s", name)
	case pod.Deleting:
	case pod.Phase == "Failed" || pod.Phase == "Succeeded" || !bootstrap && pod.Labels[api.LabelBootstrap] != "" && allReady(o):
		p.add(func(ctx context.Context, m *manager) error { return m.kube.DeletePod(ctx, pod) }, "replace pod %s", name)
		delete(o.pods, name) // the others wait for its successor
	}
}

func allReady(o *observed) bool {
	for _, r := range o.v.Spec.Replicas {
		if pod, ok := o.pods[api.ReplicaName(o.v.Name, r.Index)]; !ok || !pod.Ready || pod.Deleting {
			return false
		}
	}
	return true
}

func workerPod(v *api.ReplicatedVolume, r *api.ReplicaSpec, s settings, bootstrap bool) kube.WorkerPod {
	name := api.ReplicaName(v.Name, r.Index)
	args := []string{
		"worker", "--dir", kube.WorkerDataPath + "/replica", "--volume", v.Name, "--replica", name, "--incarnation", fmt.Sprint(r.Incarnation),
		"--listen", fmt.Sprintf(":%d", api.WorkerPort), "--trust", kube.WorkerTrustPath, "--metrics-addr", fmt.Sprintf(":%d", workerMetricsPort),
	}
	for _, o := range v.Spec.Replicas {
		m := worker.Member{
			ID: uint64(o.Member), Replica: api.ReplicaName(v.Name, o.Index),
			Addr: fmt.Sprintf("%s:%d", api.ServiceDNS(v.Name, o.Index, s.namespace, s.domain), api.WorkerPort),
		}
		args = append(args, "--member", m.String())
	}
	if bootstrap {
		args = append(args, "--bootstrap")
	}
	return kube.WorkerPod{
		Volume: v, Index: r.Index, Node: r.Node, Image: s.workerImage, Args: args, Secret: name, MetricsPort: workerMetricsPort, Bootstrap: bootstrap,
	}
}
