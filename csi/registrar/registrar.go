package registrar

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"tak-os.org/tak-replicated/csi/names"
	"tak-os.org/tak-replicated/csi/server"
)

// Driver is a driver to register.
type Driver struct {
	// Socket is the driver's CSI socket as this process sees it.
	Socket string
	// KubeletSocket is the same as the kubelet sees it.
	KubeletSocket string
}

// supported are the versions that the kubelet is told: those of CSI.
var supported = []string{"1.0.0"}

// How long to wait before trying again.
const (
	// DefaultRetry is between two attempts at what failed.
	DefaultRetry = 5 * time.Second
	// askPatience bounds the question for a driver's name.
	askPatience = 5 * time.Second
)

// Registrar registers one driver. Safe for concurrent use.
type Registrar struct {
	driver Driver
	folder string
	retry  time.Duration
	log    *zap.Logger
	mu     struct {
		sync.Mutex
		state error // why it is not registered; nil when it is
	}
}

var errWaiting = errors.New("the kubelet has not taken it in yet")

// New returns what registers d in the kubelet's registration folder. It tries
// again retry after a failure.
func New(d Driver, folder string, retry time.Duration, log *zap.Logger) *Registrar {
	r := &Registrar{driver: d, folder: folder, retry: retry, log: log}
	r.set(errWaiting)
	return r
}

// Registered returns nil when the kubelet has taken the driver in, else why not.
func (r *Registrar) Registered() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.state
}

func (r *Registrar) set(state error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.state = state
}

// Run keeps the driver registered until ctx ends.
func (r *Registrar) Run(ctx context.Context) error {
	for {
		err := r.attempt(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.set(err)
		r.log.Warn("driver is not registered", zap.String("socket", r.driver.Socket), zap.Error(err))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(r.retry):
		}
	}
}

// attempt offers the driver to the kubelet until ctx ends or the kubelet refuses.
func (r *Registrar) attempt(ctx context.Context) error {
	name, err := r.ask(ctx)
	if err != nil {
		return err
	}
	l, err := server.Listen(filepath.Join(r.folder, name+"-reg.sock"))
	if err != nil {
		return err
	}
	r.set(errWaiting)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := server.New(r.log, nil)
	registration.RegisterRegistrationServer(s, &offer{registrar: r, name: name, refused: cancel})
	if err := server.Serve(ctx, l, s); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// ask asks the driver for its name.
func (r *Registrar) ask(ctx context.Context) (string, error) {
	conn, err := server.Dial(r.driver.Socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	if err != nil {
		return "", fmt.Errorf("ask the driver for its name: %w", err)
	}
	// CSI wants a domain name; here it is the name of a file as well.
	if !names.Subdomain(info.Name) {
		return "", fmt.Errorf("the driver's name %q is not a domain name", info.Name)
	}
	return info.Name, nil
}

// offer is what the kubelet sees of a driver.
type offer struct {
	registration.UnimplementedRegistrationServer
	registrar *Registrar
	name      string
	refused   context.CancelCauseFunc
}

var _ registration.RegistrationServer = (*offer)(nil)

// GetInfo tells the kubelet who is there.
func (o *offer) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: o.name, Endpoint: o.registrar.driver.KubeletSocket, SupportedVersions: supported,
	}, nil
}

// NotifyRegistrationStatus is told whether the kubelet took the driver in.
func (o *offer) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.PluginRegistered {
		o.registrar.set(nil)
		o.registrar.log.Info("driver is registered", zap.String("driver", o.name))
	} else {
		err := fmt.Errorf("the kubelet refuses driver %s: %.500s", o.name, s.Error)
		o.registrar.set(err)
		o.refused(err)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
