package kube

import (
	"context"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"tak-os.org/tak-replicated/kube/api"
)

// managedBy tells the cluster's own controllers to leave a slice alone.
const managedBy = "replica-host." + api.DriverReplicated

// Endpoint is an EndpointSlice of a replica's Service.
type Endpoint struct {
	Name, UID string
	Service   string
	Addrs     []string // host:port
	Node      string
	ByHost    bool // a replica host wrote it
}

// Endpoints lists the EndpointSlices of a volume's Services.
func (c *Client) Endpoints(ctx context.Context, volume string) ([]Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.core.DiscoveryV1().EndpointSlices(c.ns).List(ctx, ofVolume(volume))
	if err != nil {
		return nil, wrap(err, "list endpoints of volume %s", volume)
	}
	var all []Endpoint
	for i := range list.Items {
		all = append(all, endpointOf(&list.Items[i]))
	}
	return all, nil
}

func endpointOf(s *discoveryv1.EndpointSlice) Endpoint {
	e := Endpoint{Name: s.Name, UID: string(s.UID), Service: s.Labels[discoveryv1.LabelServiceName], ByHost: s.Labels[discoveryv1.LabelManagedBy] == managedBy}
	for _, p := range s.Endpoints {
		if p.NodeName != nil {
			e.Node = *p.NodeName
		}
		for _, a := range p.Addresses {
			for _, port := range s.Ports {
				if port.Port != nil {
					e.Addrs = append(e.Addrs, net.JoinHostPort(a, strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	return e
}

// ApplyEndpoint says at which address of a node's Pod a replica listens. It is
// the host's slice alone, and is replaced whole.
func (c *Client) ApplyEndpoint(ctx context.Context, volume string, index int32, node, ip string, port int32) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	parsed := net.ParseIP(ip)
	if parsed == nil {
		return fmt.Errorf("address %q of replica host is no IP address", ip)
	}
	family := discoveryv1.AddressTypeIPv4
	if parsed.To4() == nil {
		family = discoveryv1.AddressTypeIPv6
	}
	name := api.ReplicaName(volume, index)
	labels := api.Labels(volume, index)
	labels[discoveryv1.LabelServiceName] = name
	labels[discoveryv1.LabelManagedBy] = managedBy
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: labels},
		AddressType: family,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{ip}, NodeName: &node,
			// Replicas have to find each other before the volume can serve.
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To(api.WorkerPortName), Port: &port, Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	slices := c.core.DiscoveryV1().EndpointSlices(c.ns)
	_, err := slices.Update(ctx, slice, metav1.UpdateOptions{})
	if NotFound(err) {
		_, err = slices.Create(ctx, slice, metav1.CreateOptions{})
	}
	return wrap(err, "apply endpoint %s", name)
}

// DeleteEndpoint removes the slice of a replica. It is no error if it is gone.
func (c *Client) DeleteEndpoint(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.core.DiscoveryV1().EndpointSlices(c.ns).Delete(ctx, name, metav1.DeleteOptions{})
	return wrap(ignore(err, NotFound), "delete endpoint %s", name)
}
