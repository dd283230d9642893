package replicahost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/kube/api"
)

// mountLook is how often the own mount table is looked at while a mount is on
// its way into this mount namespace.
const mountLook = 100 * time.Millisecond

// consumerID is who the replica's acquisition belongs to: the replica, not the
// process, so that the next process finds it its own.
func consumerID(a *Assignment) string { return "replica-host." + a.Key() }

// acquire gets the replica's storage from the local driver and waits until it is
// in this process's mount namespace.
func (r *replica) acquire(ctx context.Context) (dir string, o *obstacle) {
	r.say(api.ReplicaAcquiring, api.HostReasonWaitingForPublish, "asking the local driver for the storage")
	callCtx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	got, err := r.host.storage.Acquire(callCtx, consumer.Request{Volume: r.record.Handle, Consumer: consumerID(&r.record.Assignment)})
	switch {
	case errors.Is(err, consumer.ErrHeld), errors.Is(err, consumer.ErrInUse):
		return "", pending(api.HostReasonPublicationConflict, "%v", err)
	case err != nil:
		return "", unavailable(api.HostReasonWaitingForPublish, "local driver: %v", err)
	}
	if got.Name == "" || strings.ContainsRune(got.Name, '/') || got.Name == "." || got.Name == ".." {
		return "", unavailable(api.HostReasonWaitingForPublish, "local driver names the mount %q", got.Name)
	}
	r.mounted = got.Name
	dir = filepath.Join(r.host.cfg.ConsumerRoot, got.Name)
	r.say(api.ReplicaAcquiring, api.HostReasonWaitingForMount, "waiting for the mount in this process's mount namespace")
	return dir, awaitMount(ctx, dir, got.Device, got.Inode)
}

// awaitMount waits until what is mounted at dir, as this process sees it, is the
// folder with that device and inode. The path proves nothing: without the mount
// it is an empty folder of another disk.
func awaitMount(ctx context.Context, dir string, device, inode uint64) *obstacle {
	deadline := time.Now().Add(callPatience)
	for {
		why := checkMount(dir, device, inode)
		if why == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return unavailable(api.HostReasonWaitingForMount, "%v", why)
		}
		select {
		case <-ctx.Done():
			return stopped
		case <-time.After(mountLook):
		}
	}
}

func checkMount(dir string, device, inode uint64) error {
	table, err := mounts.Own()
	if err != nil {
		return err
	}
	if _, ok := mounts.At(table, dir); !ok {
		return fmt.Errorf("%s is not mounted in this mount namespace: is the consumer mount root shared with the local driver?", dir)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if uint64(st.Dev) != device || st.Ino != inode {
		return fmt.Errorf("%s is device %d inode %d, the local driver published device %d inode %d", dir, st.Dev, st.Ino, device, inode)
	}
	return nil
}

// unpublish gives the storage back and waits until the mount is gone here too.
func (r *replica) unpublish(ctx context.Context) *obstacle {
	r.say(api.ReplicaReleasing, api.HostReasonUnpublishing, "giving the storage back to the local driver")
	callCtx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	err := r.host.storage.Release(callCtx, consumer.Request{Volume: r.record.Handle, Consumer: consumerID(&r.record.Assignment)})
	if err != nil {
		return &obstacle{phase: api.ReplicaReleasing, reason: api.HostReasonUnpublishing, message: fmt.Sprintf("local driver: %v", err)}
	}
	// A process that has never acquired it takes the handle, as which the local driver names mounts.
	return awaitNoMount(ctx, filepath.Join(r.host.cfg.ConsumerRoot, cmp.Or(r.mounted, r.record.Handle)))
}

// awaitNoMount waits until nothing is mounted at dir, as this process sees it: until then the volume is in use here, whatever the
// local driver has taken away on its side.
func awaitNoMount(ctx context.Context, dir string) *obstacle {
	deadline := time.Now().Add(goneWithin)
	for {
		table, err := mounts.Own()
		if err == nil {
			if _, there := mounts.At(table, dir); !there {
				return nil
			}
			err = fmt.Errorf("%s is still mounted in this mount namespace", dir)
		}
		if time.Now().After(deadline) {
			return &obstacle{phase: api.ReplicaReleasing, reason: api.HostReasonUnpublishing, message: err.Error()}
		}
		select {
		case <-ctx.Done():
			return stopped
		case <-time.After(mountLook):
		}
	}
}

// goneWithin is how long a mount that was taken away may take to go here too, before it is said that it does not.
const goneWithin = 2 * time.Second
