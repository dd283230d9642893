package kube

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tak-os.org/tak-replicated/kube/api"
)

// Options say how to reach the API server.
type Options struct {
	// Kubeconfig is a file; empty stands for the Pod's own account.
	Kubeconfig string
	// Namespace is the driver's.
	Namespace string
	// UserAgent names the caller in the server's logs.
	UserAgent string
	// Timeout bounds a call that is no watch; 0 stands for DefaultTimeout.
	Timeout time.Duration
	// Rate bounds the calls a second; 0 stands for DefaultRate.
	Rate float32
	// Wrap puts something around the connection; nil for nothing.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// DefaultTimeout bounds a call.
const DefaultTimeout = 15 * time.Second

// DefaultRate is how many calls a second a client makes at most. Twice as many may be made at once.
const DefaultRate = 50

// leaseRate bounds the calls a second that a lease takes: two each time it is renewed.
const leaseRate = 10

// Client makes calls. It may be used by several goroutines.
type Client struct {
	ns      string
	core    kubernetes.Interface
	volumes rest.Interface
	leases  coordination.LeasesGetter // with a rate of its own: who leads must not lose that because there is much to do
	timeout time.Duration
	seen    eventCounts
}

// Connect makes a client. It makes no call yet.
func Connect(o Options) (*Client, error) {
	cfg, err := config(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return newClient(cfg, o)
}

func config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no kubeconfig given, and this is not a Pod of a cluster: %w", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return cfg, nil
}

func newClient(cfg *rest.Config, o Options) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	if cfg.QPS = o.Rate; cfg.QPS == 0 {
		cfg.QPS = DefaultRate
	}
	cfg.Burst = int(2 * cfg.QPS)
	if o.UserAgent != "" {
		cfg.UserAgent = o.UserAgent
	}
	if o.Wrap != nil {
		cfg.Wrap(o.Wrap)
	}
	c := &Client{ns: o.Namespace, timeout: o.Timeout}
	if c.ns == "" {
		c.ns = api.DefaultNamespace
	}
	if c.timeout == 0 {
		c.timeout = DefaultTimeout
	}
	var err error
	if c.core, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if c.leases, err = coordination.NewForConfig(leaseConfig(cfg)); err != nil {
		return nil, err
	}
	c.volumes, err = volumeClient(cfg)
	return c, err
}

func leaseConfig(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = leaseRate, 2*leaseRate
	return cfg
}

// volumeClient speaks of ReplicatedVolumes.
func volumeClient(cfg *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	gv := api.GroupVersion
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(cfg)
}

// Namespace is the driver's namespace.
func (c *Client) Namespace() string { return c.ns }
