package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tak-os.org/tak-replicated/kube/api"
)

// Service is the Service of a replica.
type Service struct {
	Name, UID       string
	ResourceVersion string
	Selects         bool // it has a selector: Pods serve it
}

// Services lists the Services of a volume.
func (c *Client) Services(ctx context.Context, volume string) ([]Service, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.core.CoreV1().Services(c.ns).List(ctx, ofVolume(volume))
	if err != nil {
		return nil, wrap(err, "list services of volume %s", volume)
	}
	var all []Service
	for _, s := range list.Items {
		all = append(all, Service{Name: s.Name, UID: string(s.UID), ResourceVersion: s.ResourceVersion, Selects: len(s.Spec.Selector) > 0})
	}
	return all, nil
}

// CreateService makes the Service of a replica. In the pod runtime it selects
// the replica's worker Pod; else its host writes the EndpointSlice.
func (c *Client) CreateService(ctx context.Context, volume string, index int32, runtime api.Runtime) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	name := api.ReplicaName(volume, index)
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: api.Labels(volume, index)},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{Name: api.WorkerPortName, Port: api.WorkerPort, Protocol: corev1.ProtocolTCP}},
			// Replicas have to find each other before the volume can serve.
			PublishNotReadyAddresses: true,
		},
	}
	if runtime == api.RuntimePod {
		s.Spec.Selector = workerSelector(volume, index)
	}
	_, err := c.core.CoreV1().Services(c.ns).Create(ctx, s, metav1.CreateOptions{})
	return wrap(err, "create service %s", name)
}

func workerSelector(volume string, index int32) map[string]string {
	l := api.Labels(volume, index)
	l[api.LabelComponent] = api.ComponentWorker
	return l
}

// ClearServiceSelector makes a Service one without a selector, so that a host's
// EndpointSlice serves it. Address and name stay.
func (c *Client) ClearServiceSelector(ctx context.Context, s Service) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	patch := []byte(`{"metadata":{"uid":"` + s.UID + `","resourceVersion":"` + s.ResourceVersion + `"},"spec":{"selector":null}}`)
	_, err := c.core.CoreV1().Services(c.ns).Patch(ctx, s.Name, mergePatch, patch, metav1.PatchOptions{})
	return wrap(err, "clear selector of service %s", s.Name)
}

// DeleteService deletes a Service that was looked at. It is no error if it is gone.
func (c *Client) DeleteService(ctx context.Context, s Service) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.core.CoreV1().Services(c.ns).Delete(ctx, s.Name, *deleteExactly(s.UID, ""))
	return wrap(ignore(err, NotFound), "delete service %s", s.Name)
}
