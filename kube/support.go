package kube

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"tak-os.org/tak-replicated/kube/api"
)

// Container is one container of the drivers.
type Container struct {
	Pod, Container string
	Restarts       int
	MetricsPorts   []string // numbers of the ports that serve metrics
}

// DriverContainers lists the containers of the drivers' Pods.
func (c *Client) DriverContainers(ctx context.Context) ([]Container, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.core.CoreV1().Pods(c.ns).List(ctx, metav1.ListOptions{LabelSelector: api.LabelComponent})
	if err != nil {
		return nil, wrap(err, "list pods")
	}
	var all []Container
	for i := range list.Items {
		p := &list.Items[i]
		restarts := map[string]int{}
		for _, s := range p.Status.ContainerStatuses {
			restarts[s.Name] = int(s.RestartCount)
		}
		for _, k := range p.Spec.Containers {
			found := Container{Pod: p.Name, Container: k.Name, Restarts: restarts[k.Name]}
			for _, port := range k.Ports {
				if strings.HasSuffix(port.Name, "metrics") {
					found.MetricsPorts = append(found.MetricsPorts, strconv.Itoa(int(port.ContainerPort)))
				}
			}
			all = append(all, found)
		}
	}
	return all, nil
}

// Log returns the last lines of a container's log, or of that of the container
// before it.
func (c *Client) Log(ctx context.Context, k Container, lines int64, before bool) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	text, err := c.core.CoreV1().Pods(c.ns).GetLogs(k.Pod, &corev1.PodLogOptions{Container: k.Container, TailLines: &lines, Previous: before}).DoRaw(ctx)
	return text, wrap(err, "read log of "+k.Pod)
}

// PodMetrics returns what a Pod serves under /metrics, by way of the API server.
func (c *Client) PodMetrics(ctx context.Context, pod, port string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	text, err := c.core.CoreV1().Pods(c.ns).ProxyGet("http", pod, port, "metrics", nil).DoRaw(ctx)
	return text, wrap(err, "read metrics of "+pod)
}

// SeenEvent is an Event as somebody who looks on needs it.
type SeenEvent struct {
	Kind, Namespace, Name string // what it is about
	Warning               bool
	Reason, Message       string
	Count                 int
	Last                  time.Time
}

// eventsMost bounds how many Events are read at once.
const eventsMost = 500

// Events lists some Events of a namespace about the drivers' objects.
func (c *Client) Events(ctx context.Context, namespace string) ([]SeenEvent, error) {
	list, err := c.events(ctx, namespace, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return seenEvents(list.Items), nil
}

// EventsAbout lists the Events about one object.
func (c *Client) EventsAbout(ctx context.Context, o Object) ([]SeenEvent, error) {
	about := fields.Set{"involvedObject.kind": o.Kind, "involvedObject.name": o.Name, "involvedObject.uid": o.UID}
	list, err := c.events(ctx, o.Namespace, metav1.ListOptions{FieldSelector: about.String()})
	if err != nil {
		return nil, err
	}
	return seenEvents(list.Items), nil
}

// claimEventPages bounds how many Events about claims are looked through.
const claimEventPages = 20

// ClaimEvents lists the Events about the claims of volumes, in whatever namespace they
// are.
func (c *Client) ClaimEvents(ctx context.Context, volumes []api.ReplicatedVolume) (all []SeenEvent, err error) {
	ours := map[types.UID]bool{}
	for i := range volumes {
		ours[types.UID(volumes[i].Spec.Claim.UID)] = true
	}
	o := metav1.ListOptions{FieldSelector: fields.Set{"involvedObject.kind": "PersistentVolumeClaim"}.String()}
	for range claimEventPages {
		list, err := c.events(ctx, metav1.NamespaceAll, o)
		if err != nil {
			return nil, err
		}
		all = append(all, seenEvents(slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return !ours[e.InvolvedObject.UID] }))...)
		if o.Continue = list.Continue; o.Continue == "" {
			break
		}
	}
	return all, nil
}

// events lists at most eventsMost Events.
func (c *Client) events(ctx context.Context, namespace string, o metav1.ListOptions) (*corev1.EventList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	o.Limit = eventsMost
	list, err := c.core.CoreV1().Events(namespace).List(ctx, o)
	return list, wrap(err, "list events of "+cmp.Or(namespace, "all namespaces"))
}

func seenEvents(items []corev1.Event) (all []SeenEvent) {
	for i := range items {
		e := &items[i]
		last := e.LastTimestamp.Time
		if last.IsZero() {
			last = e.CreationTimestamp.Time
		}
		all = append(all, SeenEvent{
			Kind: e.InvolvedObject.Kind, Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name,
			Warning: e.Type == corev1.EventTypeWarning, Reason: e.Reason, Message: e.Message, Count: int(e.Count), Last: last,
		})
	}
	return all
}
