package pernode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/csi/names"
)

// retryLook is how long after a look that could not decide the next one comes.
const retryLook = 10 * time.Second

// waitingMost bounds the handles that wait for a look; above it all are looked at.
const waitingMost = 1024

// wake asks Run for a look at a handle, or at all for "".
func (d *Driver) wake(handle string) {
	d.mu.Lock()
	if handle == "" || len(d.mu.waiting) >= waitingMost {
		d.mu.all = true
	} else {
		d.mu.waiting[handle] = struct{}{}
	}
	d.mu.Unlock()
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// waiting takes what wake gathered.
func (d *Driver) waiting() (handles []string, all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	handles, all = slices.Sorted(maps.Keys(d.mu.waiting)), d.mu.all
	clear(d.mu.waiting)
	d.mu.all = false
	return handles, all
}

// Run removes copies whose PersistentVolume is gone, and empties the trash, until
// ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := []func(context.Context) error{
		d.trash.Run,
		func(ctx context.Context) error { return d.cluster.WatchPVs(ctx, d.wake) },
		d.keepLooking,
	}
	ended := make(chan error, len(parts))
	for _, run := range parts {
		go func() { ended <- run(ctx) }()
	}
	var first error
	for range parts {
		err := <-ended
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil
		}
		if first == nil {
			first = err
		}
		cancel()
	}
	return first
}

func (d *Driver) keepLooking(ctx context.Context) error {
	d.wake("")
	next := time.NewTimer(d.cfg.LookEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.woken:
		case <-next.C:
			d.wake("")
		}
		handles, all := d.waiting()
		if all {
			next.Reset(d.cfg.LookEvery)
		}
		if err := d.lookAtEach(ctx, handles, all); err != nil && ctx.Err() == nil {
			d.log.Info("some copies could not be looked at", zap.Error(err))
			next.Reset(min(retryLook, d.cfg.LookEvery))
		}
	}
}

func (d *Driver) lookAtEach(ctx context.Context, handles []string, all bool) error {
	if all {
		return d.Look(ctx)
	}
	var errs []error
	for _, handle := range handles {
		if err := d.lookAt(ctx, handle); err != nil {
			errs = append(errs, fmt.Errorf("handle %s: %w", handle, err))
		}
	}
	return errors.Join(errs...)
}

// Look removes the copies that have no PersistentVolume any more and that nobody
// uses. The error is of those that it could not decide about; the others are done.
func (d *Driver) Look(ctx context.Context) error {
	handles, err := d.records.Names()
	if err != nil {
		return err
	}
	kept, err := fs.ReadDir(d.copies.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range kept {
		if names.Subdomain(e.Name()) {
			handles = append(handles, e.Name())
		}
	}
	slices.Sort(handles)
	return d.lookAtEach(ctx, slices.Compact(handles), false)
}

func (d *Driver) lookAt(ctx context.Context, handle string) error {
	unlock, err := d.busy.Lock(ctx, handle)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := d.read(handle)
	if err != nil {
		return err
	}
	if r == nil {
		return d.lookWithoutRecord(ctx, handle)
	}
	if err := d.removeCopies(handle, r.PV.UID); err != nil {
		return err
	}
	if r.Hold != nil {
		over, err := d.over(ctx, r)
		if err != nil || !over {
			return err
		}
		r.Hold = nil
		if err := d.write(r); err != nil {
			return err
		}
		d.step("old hold released")
	}
	exists, err := d.cluster.PVExists(ctx, r.PV)
	if err != nil {
		return fmt.Errorf("whether PersistentVolume %s exists: %w: %w", r.PV.Name, errNoAnswer, err)
	}
	if exists {
		return nil
	}
	if err := d.removeCopies(handle, ""); err != nil {
		return err
	}
	d.step("copy in the trash")
	if err := d.records.Remove(handle); err != nil {
		return err
	}
	d.step("record removed")
	d.log.Info("copy removed, since its PersistentVolume is gone", zap.String("volume", handle), zap.String("pv", r.PV.Name))
	return nil
}

// lookWithoutRecord looks at copies whose record was lost.
func (d *Driver) lookWithoutRecord(ctx context.Context, handle string) error {
	if _, err := d.copies.Lstat(handle); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	pv, err := d.cluster.PVOf(ctx, handle)
	switch {
	case err == nil:
		return d.removeCopies(handle, pv.UID)
	case errors.Is(err, ErrNoPV):
		return d.removeCopies(handle, "")
	}
	return fmt.Errorf("which PersistentVolume has it: %w: %w", errNoAnswer, err)
}

// removeCopies moves a handle's copies into the trash, all but one.
func (d *Driver) removeCopies(handle, except string) error {
	of, err := d.copies.OpenRoot(handle)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer of.Close()
	entries, err := fs.ReadDir(of.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == except {
			continue
		}
		if err := d.removeCopy(of, e.Name()); err != nil {
			return err
		}
	}
	if except != "" {
		return nil
	}
	return d.trash.Take(d.copies, handle)
}

func (d *Driver) removeCopy(of *os.Root, uid string) error {
	f, err := of.Open(uid)
	if err != nil {
		return err
	}
	uses, err := mounts.Uses(f, d.cfg.Proc)
	f.Close()
	if err != nil {
		return err
	}
	if len(uses) > 0 {
		return fmt.Errorf("copy %s: %w at %v", uid, errMounted, uses[0])
	}
	return d.trash.Take(of, uid)
}
