package pernode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/names"
)

// heldError is the refusal of a handle that a Pod holds.
type heldError struct {
	handle string
	by     *hold
}

func (e heldError) Error() string {
	return fmt.Sprintf("handle %s is held by Pod %v (UID %s) since %s, until that Pod's volume is unmounted",
		e.handle, e.by.Pod, e.by.Pod.UID, e.by.Since.Format(time.RFC3339))
}

// publication is a Pod's wish to have a handle at a target.
type publication struct {
	handle   string
	target   string
	pod      Pod
	readOnly bool
}

// publish takes the handle for the Pod, and mounts this node's copy at the target.
func (d *Driver) publish(ctx context.Context, p publication) error {
	if err := d.check(p.handle, p.target); err != nil {
		return err
	}
	unlock, err := d.busy.Lock(ctx, p.handle)
	if err != nil {
		return err
	}
	defer unlock()
	pv, err := d.cluster.PVOf(ctx, p.handle)
	switch {
	case errors.Is(err, ErrNoPV), errors.Is(err, ErrManyPVs):
		return fmt.Errorf("handle %s: %w", p.handle, err)
	case err != nil:
		return fmt.Errorf("which PersistentVolume has handle %s: %w: %w", p.handle, errNoAnswer, err)
	case !validUID(pv.UID):
		return fmt.Errorf("PersistentVolume %s has UID %q", pv.Name, pv.UID)
	}
	before, err := d.take(ctx, p, pv)
	if err != nil {
		return err
	}
	if err := d.mount(p, pv); err != nil {
		return errors.Join(err, d.giveBack(p, before))
	}
	return nil
}

// take makes the handle the Pod's, durably, and returns the record that it
// replaced, if any.
func (d *Driver) take(ctx context.Context, p publication, pv PV) (before *record, err error) {
	before, err = d.read(p.handle)
	if err != nil {
		return nil, err
	}
	now := &record{Version: recordVersion, Handle: p.handle, PV: pv}
	if before != nil {
		if err := d.free(ctx, before, p.pod); err != nil {
			return nil, err
		}
		now.Hold = before.Hold
	}
	if now.Hold != nil && before.PV.UID != pv.UID {
		// The Pod holds a copy of a PersistentVolume that has been replaced.
		return nil, heldError{p.handle, now.Hold}
	}
	if now.Hold == nil {
		now.Hold = &hold{Pod: p.pod, Boot: d.boot, Since: time.Now().UTC()}
	}
	now.Hold = now.Hold.with(p.target)
	now.Hold.Boot = d.boot
	if err := d.write(now); err != nil {
		return nil, err
	}
	d.step("hold recorded")
	if before != nil && before.PV.UID != pv.UID {
		// From here on no record names the old copy; it is removed when nothing of it
		// is mounted.
		d.wake(p.handle)
	}
	return before, nil
}

// free returns nil if pod may have the handle: it has it, or nobody has. A hold
// that nobody can have any more is dropped from r.
func (d *Driver) free(ctx context.Context, r *record, pod Pod) error {
	if r.Hold == nil || r.Hold.Pod.UID == pod.UID {
		return nil
	}
	over, err := d.over(ctx, r)
	if err != nil {
		return err
	}
	if !over {
		return heldError{r.Handle, r.Hold}
	}
	d.log.Info("hold from before the machine started is over", zap.String("volume", r.Handle), zap.Stringer("pod", r.Hold.Pod))
	r.Hold = nil
	return nil
}

// over reports whether a hold is from before the machine started, of a Pod that is
// gone, and nothing is mounted.
func (d *Driver) over(ctx context.Context, r *record) (bool, error) {
	if r.Hold.Boot == d.boot {
		return false, nil
	}
	mounted, err := d.mounted(r.Handle, r.PV.UID)
	if err != nil || mounted {
		return false, err
	}
	exists, err := d.cluster.PodExists(ctx, r.Hold.Pod)
	if err != nil {
		return false, fmt.Errorf("whether Pod %v exists: %w: %w", r.Hold.Pod, errNoAnswer, err)
	}
	return !exists, nil
}

// mount makes the copy and mounts it.
func (d *Driver) mount(p publication, pv PV) error {
	f, err := d.makeCopy(p.handle, pv.UID)
	if err != nil {
		return err
	}
	defer f.Close()
	d.step("copy made")
	if err := d.targets().Publish(f, p.target, p.readOnly); err != nil {
		return err
	}
	d.step("mounted")
	return nil
}

// giveBack undoes take after a mount that failed: the kubelet may never unpublish
// what it was refused. If something of ours is at the target all the same, the hold
// stays for its unpublication.
func (d *Driver) giveBack(p publication, before *record) error {
	if before != nil && before.Hold != nil && before.Hold.Pod.UID == p.pod.UID {
		return nil
	}
	r, err := d.read(p.handle)
	if err != nil || r == nil {
		return err
	}
	f, err := d.folder(p.handle, r.PV.UID)
	if err == nil {
		there, err := d.targets().Published(f, p.target)
		f.Close()
		if err != nil || there {
			return err
		}
	}
	r.Hold = r.Hold.without(p.target)
	return d.write(r)
}

// unpublish takes away what is mounted at the target, and the hold with the last
// one.
func (d *Driver) unpublish(ctx context.Context, handle, target string) error {
	if err := d.check(handle, target); err != nil {
		return err
	}
	unlock, err := d.busy.Lock(ctx, handle)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := d.copies.Open(".")
	if err != nil {
		return err
	}
	defer all.Close()
	if err := d.targets().Unpublish(all, handle, target); err != nil {
		return err
	}
	d.step("unmounted")
	r, err := d.read(handle)
	if err != nil || r == nil || r.Hold == nil {
		return err
	}
	left := r.Hold.without(target)
	if left != nil && len(left.Targets) == len(r.Hold.Targets) {
		return nil
	}
	r.Hold = left
	if err := d.write(r); err != nil {
		return err
	}
	d.step("hold released")
	if left == nil {
		d.wake(handle)
	}
	return nil
}

// published opens the copy if it is what is mounted at a path.
func (d *Driver) published(handle, path string) (*os.File, error) {
	if !names.Subdomain(handle) {
		return nil, fmt.Errorf("handle %.200q: %w", handle, errHandle)
	}
	r, err := d.read(handle)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fmt.Errorf("handle %s: %w", handle, errNoCopy)
	}
	f, err := d.folder(handle, r.PV.UID)
	if err != nil {
		return nil, err
	}
	there, err := d.targets().Published(f, path)
	if err == nil && !there {
		err = fmt.Errorf("handle %s at %s: %w", handle, path, errNoCopy)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
