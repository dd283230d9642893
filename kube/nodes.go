package kube

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"tak-os.org/tak-replicated/kube/api"
)

// Node is a node with what makes it fit for replicas.
type Node struct {
	Name          string
	Ready         bool
	Unschedulable bool
	Drivers       []string // CSI drivers that are registered there
	HostReady     bool     // its replica host is ready
}

// HasDriver reports whether a CSI driver is registered on the node.
func (n *Node) HasDriver(name string) bool { return slices.Contains(n.Drivers, name) }

// Nodes lists the nodes, their drivers and their replica hosts. That takes three calls.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, wrap(err, "list nodes")
	}
	drivers, err := c.registeredDrivers(ctx)
	if err != nil {
		return nil, err
	}
	hosts, err := c.readyHosts(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []Node
	for i := range list.Items {
		n := &list.Items[i]
		nodes = append(nodes, Node{
			Name: n.Name, Ready: nodeReady(n), Unschedulable: n.Spec.Unschedulable || n.DeletionTimestamp != nil,
			Drivers: drivers[n.Name], HostReady: hosts[n.Name],
		})
	}
	return nodes, nil
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// WatchNodes makes a watch that calls notify, one call at a time, with the name of every node that
// turns ready, ceases to be, or goes. Nodes that are there at its start are not told of. It
// starts with Run.
func (c *Client) WatchNodes(notify func(node string)) *PartWatch {
	lw := cache.NewListWatchFromClient(c.core.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll, fields.Everything())
	return &PartWatch{newInformer(watched{from: lw, kind: &corev1.Node{}, bare: bareNode}, nodeSeen(notify))}
}

func nodeSeen(notify func(node string)) seen {
	return seen{
		changed: func(before, now any) {
			was, is := before.(*corev1.Node), now.(*corev1.Node)
			if nodeReady(was) != nodeReady(is) {
				notify(is.Name)
			}
		},
		gone: func(name string, _ any) { notify(name) },
	}
}

// bareNode keeps what nodeReady looks at: the images of a node alone are many kilobytes.
func bareNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion},
		Status:     corev1.NodeStatus{Conditions: n.Status.Conditions},
	}, nil
}

func (c *Client) registeredDrivers(ctx context.Context) (map[string][]string, error) {
	list, err := c.core.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, wrap(err, "list CSI nodes")
	}
	drivers := map[string][]string{}
	for _, n := range list.Items {
		for _, d := range n.Spec.Drivers {
			drivers[n.Name] = append(drivers[n.Name], d.Name)
		}
	}
	return drivers, nil
}

// readyHosts tells on which nodes a replica host's container is ready, which
// it is only while the local driver's consumer publication answers it.
func (c *Client) readyHosts(ctx context.Context) (map[string]bool, error) {
	list, err := c.core.CoreV1().Pods(c.ns).List(ctx, metav1.ListOptions{LabelSelector: api.LabelComponent + "=" + api.ComponentNode})
	if err != nil {
		return nil, wrap(err, "list replica hosts")
	}
	ready := map[string]bool{}
	for _, p := range list.Items {
		for _, s := range p.Status.ContainerStatuses {
			if s.Name == api.ContainerHost && s.Ready && p.DeletionTimestamp == nil {
				ready[p.Spec.NodeName] = true
			}
		}
	}
	return ready, nil
}
