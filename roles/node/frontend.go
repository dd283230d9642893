package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/mountowner"
	"tak-os.org/tak-replicated/roles/worker"
)

// Cluster is what the frontend asks of the API.
type Cluster interface {
	Namespace() string
	Volume(ctx context.Context, name string) (*api.ReplicatedVolume, error)
	Secret(ctx context.Context, namespace, name string) (kube.Secret, error)
	Event(ctx context.Context, component string, about kube.Object, warning bool, reason, message string) error
}

// Owner is the mount owner.
type Owner interface {
	Stage(ctx context.Context, q mountowner.StageRequest) (*mountowner.Status, error)
	Unstage(ctx context.Context, volume, path string) error
	Publish(ctx context.Context, q mountowner.PublishRequest) error
	Unpublish(ctx context.Context, volume, target string) error
	Stats(ctx context.Context, volume, path string) (*mountowner.Usage, error)
	Refresh(ctx context.Context, volume string, c mountowner.Credentials) error
	Mounts(ctx context.Context) ([]mountowner.Status, error)
	Health(ctx context.Context) (*mountowner.Health, error)
}

var (
	_ Cluster           = (*kube.Client)(nil)
	_ Owner             = (*mountowner.Client)(nil)
	_ replicated.Mounts = (*frontend)(nil)
)

// Addresses says where a replica is reached: HOST:PORT and the name in its
// certificate.
type Addresses func(volume string, index int32) (addr, serverName string)

// frontend makes mounts through the owner. Safe for concurrent use.
type frontend struct {
	node       string
	cluster    Cluster
	owner      Owner
	addresses  Addresses
	quorumWait time.Duration
	log        *zap.Logger
}

// Stage implements replicated.Mounts. A mount that is dead is made anew: whoever
// uses the old one gets ENOTCONN, and the volume an Event.
func (f *frontend) Stage(ctx context.Context, handle, staging string, access replicated.Access) error {
	q, err := f.request(ctx, handle, staging, access)
	if err != nil {
		return err
	}
	st, err := f.owner.Stage(ctx, q)
	if err == nil && st.Replaced {
		f.tell(ctx, handle)
	}
	return translate(err)
}

// request is what the owner needs to mount a volume.
func (f *frontend) request(ctx context.Context, handle, staging string, access replicated.Access) (q mountowner.StageRequest, err error) {
	v, err := f.cluster.Volume(ctx, handle)
	if kube.NotFound(err) {
		return q, &replicated.Error{Kind: replicated.Missing, Message: fmt.Sprintf("there is no volume %s", handle)}
	}
	if err != nil {
		return q, err
	}
	oneNode := v.Spec.AccessMode == api.ReadWriteOnce
	if oneNode && access == replicated.ManyNodes {
		return q, &replicated.Error{Kind: replicated.Refused, Message: fmt.Sprintf("volume %s is ReadWriteOnce", handle)}
	}
	creds, err := f.credentials(ctx, handle)
	if err != nil {
		return q, err
	}
	q = mountowner.StageRequest{Credentials: creds, Spec: mountowner.Spec{
		Mountpoint: staging, Volume: handle, Name: f.node, QuorumWaitMs: f.quorumWait.Milliseconds(),
	}}
	if oneNode {
		q.Owner = f.node
	}
	for _, r := range v.Spec.Replicas {
		addr, name := f.addresses(handle, r.Index)
		m := worker.Member{ID: uint64(r.Member), Replica: api.ReplicaName(handle, r.Index), Addr: addr, ServerName: name}
		q.Members = append(q.Members, m.String())
		if r.Node == f.node {
			q.Near = m.ID
		}
	}
	return q, nil
}

// credentials reads the volume's client Secret, by its name.
func (f *frontend) credentials(ctx context.Context, handle string) (mountowner.Credentials, error) {
	s, err := f.cluster.Secret(ctx, api.TrustNamespace, api.ClientSecret(handle))
	if kube.NotFound(err) {
		return nil, &replicated.Error{Kind: replicated.Pending, Message: fmt.Sprintf("volume %s has no credentials yet", handle)}
	}
	return mountowner.Credentials(s.Data), err
}

// Unstage implements replicated.Mounts.
func (f *frontend) Unstage(ctx context.Context, handle, staging string) error {
	return translate(f.owner.Unstage(ctx, handle, staging))
}

// Publish implements replicated.Mounts. What is not staged, or dead, is staged at first.
func (f *frontend) Publish(ctx context.Context, handle, staging, target string, access replicated.Access, readOnly bool) error {
	q := mountowner.PublishRequest{Volume: handle, Staging: staging, Target: target, ReadOnly: readOnly}
	err := f.owner.Publish(ctx, q)
	if !errors.Is(err, mountowner.ErrNotStaged) {
		return translate(err)
	}
	if err := f.Stage(ctx, handle, staging, access); err != nil {
		return err
	}
	return translate(f.owner.Publish(ctx, q))
}

// tell says that a mount was made anew: to who looks after volumes, and to who has the claim.
func (f *frontend) tell(ctx context.Context, handle string) {
	f.log.Warn("a dead mount was made anew", zap.String("volume", handle))
	v, err := f.cluster.Volume(ctx, handle)
	if err == nil {
		c := v.Spec.Claim
		for _, about := range []kube.Object{kube.ObjectOfVolume(v), kube.ObjectOfClaim(c.Namespace, c.Name, c.UID)} {
			err = errors.Join(err, f.cluster.Event(ctx, component, about, true, "MountReplaced",
				fmt.Sprintf("the mount on node %s was dead and has been made anew; containers that had the old one get ENOTCONN until they are restarted", f.node)))
		}
	}
	if err != nil {
		f.log.Warn("event", zap.String("volume", handle), zap.Error(err))
	}
}

// component names the frontend in Events.
const component = "tak-replicated-node"

// Unpublish implements replicated.Mounts.
func (f *frontend) Unpublish(ctx context.Context, handle, target string) error {
	return translate(f.owner.Unpublish(ctx, handle, target))
}

// Usage implements replicated.Mounts.
func (f *frontend) Usage(ctx context.Context, handle, path string) (replicated.Usage, error) {
	u, err := f.owner.Stats(ctx, handle, path)
	switch {
	case err != nil:
		return replicated.Usage{}, translate(err)
	case u.Abnormal != "":
		return replicated.Usage{}, fmt.Errorf("the volume does not answer: %s", u.Abnormal)
	}
	return replicated.Usage{
		BytesTotal: int64(u.Bytes), BytesFree: int64(u.BytesFree), InodesTotal: int64(u.Inodes), InodesFree: int64(u.InodesFree),
	}, nil
}

// translate says in the service's terms what the owner answered.
func translate(err error) error {
	var owned *client.OwnedError
	var busy *mountowner.BusyError
	kind := replicated.Unknown
	switch {
	case err == nil:
		return nil
	case errors.As(err, &owned), errors.As(err, &busy), errors.Is(err, mountowner.ErrNotStaged):
		kind = replicated.InUse
	case errors.Is(err, mountowner.ErrConflict):
		kind = replicated.Different
	case errors.Is(err, mountowner.ErrNotMounted):
		kind = replicated.Missing
	case boot.IsUsage(err):
		kind = replicated.Refused
	default:
		return err
	}
	return &replicated.Error{Kind: kind, Message: boot.OneLine(err)}
}

// refreshEvery is how often the credentials of what is mounted are brought up to
// date; they are renewed at half of their life, the shortest of which is a day. When not
// all could be, it is tried again after refreshAgain, and twice as long each time.
const (
	refreshEvery = 10 * time.Minute
	refreshAgain = 15 * time.Second
)

// refresh hands renewed credentials to the owner until ctx ends. Without the API
// the old ones last for at least half of their life.
func (f *frontend) refresh(ctx context.Context) error {
	again := refreshAgain
	for {
		pause := refreshEvery
		if f.refreshAll(ctx) {
			again = refreshAgain
		} else {
			pause = again
			again = min(2*again, refreshEvery)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// refreshAll reports whether all that is mounted has the newest credentials there are.
func (f *frontend) refreshAll(ctx context.Context) bool {
	mounts, err := f.owner.Mounts(ctx)
	if err != nil {
		f.log.Info("list mounts", zap.Error(err))
		return false
	}
	all := true
	done := map[string]bool{}
	for _, m := range mounts {
		if done[m.Volume] {
			continue
		}
		done[m.Volume] = true
		creds, err := f.credentials(ctx, m.Volume)
		if err == nil {
			err = f.owner.Refresh(ctx, m.Volume, creds)
		}
		if err != nil && ctx.Err() == nil {
			f.log.Warn("renew credentials", zap.String("volume", m.Volume), zap.Error(err))
			var none *replicated.Error
			all = all && errors.As(err, &none)
		}
	}
	return all
}

// readyPatience bounds the question whether the owner answers.
const readyPatience = 2 * time.Second

// ready says why nothing can be mounted.
func (f *frontend) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyPatience)
	defer cancel()
	_, err := f.owner.Health(ctx)
	return err
}
