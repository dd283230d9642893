package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/csi/names"
)

var _ consumer.Service = (*Driver)(nil)

// checkConsumerRoot makes sure that what is mounted beneath the consumer mount
// root reaches others.
func (d *Driver) checkConsumerRoot() error {
	root := d.cfg.ConsumerRoot
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	d.cfg.ConsumerRoot = real
	table, err := mounts.Own()
	if err != nil {
		return err
	}
	m, ok := mounts.Containing(table, real)
	if !ok {
		return fmt.Errorf("consumer mount root %s lies in no mount of this process", root)
	}
	if !m.Shared {
		return fmt.Errorf("consumer mount root %s lies in the mount %s, which is not shared: mount it with Bidirectional propagation", root, m.Point)
	}
	return nil
}

// Acquire implements [consumer.Service].
func (d *Driver) Acquire(ctx context.Context, q consumer.Request) (consumer.Acquisition, error) {
	if err := d.checkRequest(q); err != nil {
		return consumer.Acquisition{}, err
	}
	unlock, err := d.busy.Lock(ctx, q.Volume)
	if err != nil {
		return consumer.Acquisition{}, err
	}
	defer unlock()
	r, err := d.lookup(q.Volume)
	if err != nil {
		return consumer.Acquisition{}, consumerError(err)
	}
	if r.AcquiredBy != "" && r.AcquiredBy != q.Consumer {
		return consumer.Acquisition{}, fmt.Errorf("volume %s: %w: %s", r.ID, consumer.ErrHeld, r.AcquiredBy)
	}
	if r.AcquiredBy == "" {
		if err := d.unused(r.ID); err != nil {
			return consumer.Acquisition{}, consumerError(err)
		}
		r.AcquiredBy, r.Acquired = q.Consumer, time.Now().UTC()
		if err := d.write(r); err != nil {
			return consumer.Acquisition{}, err
		}
		d.step("acquisition recorded")
		d.log.Info("volume acquired", zap.String("volume", r.ID), zap.String("consumer", q.Consumer))
	}
	return d.mountConsumer(r)
}

// mountConsumer makes an acquired volume's mount, if it is not there.
func (d *Driver) mountConsumer(r *record) (consumer.Acquisition, error) {
	f, err := d.folder(r.ID)
	if err != nil {
		return consumer.Acquisition{}, err
	}
	defer f.Close()
	own, err := mounts.Own()
	if err != nil {
		return consumer.Acquisition{}, err
	}
	a, err := d.acquisition(r, f, own)
	if err != nil || a.Mounted {
		return a, err
	}
	if err := d.consumers().Publish(f, a.Path, false); err != nil {
		return consumer.Acquisition{}, err
	}
	d.step("acquisition mounted")
	a.Mounted = true
	return a, nil
}

// acquisition describes an acquired volume, whose folder is f, by the own mount table.
func (d *Driver) acquisition(r *record, f *os.File, own []mounts.Mount) (consumer.Acquisition, error) {
	a := consumer.Acquisition{Volume: r.ID, Consumer: r.AcquiredBy, Name: r.ID, Path: filepath.Join(d.cfg.ConsumerRoot, r.ID)}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return a, fmt.Errorf("stat volume %s: %w", r.ID, err)
	}
	a.Device, a.Inode = st.Dev, st.Ino
	var err error
	a.Mounted, err = d.consumers().PublishedIn(own, f, a.Path)
	return a, err
}

// Release implements [consumer.Service].
func (d *Driver) Release(ctx context.Context, q consumer.Request) error {
	if err := d.checkRequest(q); err != nil {
		return err
	}
	unlock, err := d.busy.Lock(ctx, q.Volume)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := d.lookup(q.Volume)
	switch {
	case errors.Is(err, errAbsent):
		return nil
	case err != nil:
		return err
	case r.AcquiredBy == "":
		return nil
	case r.AcquiredBy != q.Consumer:
		return fmt.Errorf("volume %s: %w: %s", r.ID, consumer.ErrHeld, r.AcquiredBy)
	}
	if err := d.unpublish(d.consumers(), r.ID, filepath.Join(d.cfg.ConsumerRoot, r.ID)); err != nil {
		return consumerError(err)
	}
	d.step("acquisition unmounted")
	r.AcquiredBy, r.Acquired = "", time.Time{}
	if err := d.write(r); err != nil {
		return err
	}
	d.step("release recorded")
	d.log.Info("volume released", zap.String("volume", r.ID), zap.String("consumer", q.Consumer))
	return nil
}

// List implements [consumer.Service]. A volume whose folder can't be read is told of, and listed as
// not mounted; one whose record can't be read is told of.
func (d *Driver) List(context.Context) ([]consumer.Acquisition, error) {
	if err := d.publishes(); err != nil {
		return nil, err
	}
	all, err := d.all()
	if err != nil {
		return nil, err
	}
	own, err := mounts.Own() // once: there may be many volumes, and replica hosts ask often
	if err != nil {
		return nil, err
	}
	list := []consumer.Acquisition{}
	for _, r := range all {
		if r.AcquiredBy == "" || r.Deleting {
			continue
		}
		a := consumer.Acquisition{Volume: r.ID, Consumer: r.AcquiredBy, Name: r.ID, Path: filepath.Join(d.cfg.ConsumerRoot, r.ID)}
		f, err := d.folder(r.ID)
		if err == nil {
			a, err = d.acquisition(r, f, own)
			f.Close()
		}
		if errors.Is(err, errLost) {
			err = nil // whoever acquires it is told
		}
		d.note(partFolder, r.ID, err)
		list = append(list, a)
	}
	return list, nil
}

// publishes says that nothing can be acquired, if that is so.
func (d *Driver) publishes() error {
	if d.cfg.ConsumerRoot == "" {
		return fmt.Errorf("%w: the driver runs without --consumer-mount-root", consumer.ErrInvalid)
	}
	return nil
}

func (d *Driver) checkRequest(q consumer.Request) error {
	if err := d.publishes(); err != nil {
		return err
	}
	switch {
	case !validID(q.Volume):
		return fmt.Errorf("%w: %q is no volume handle of %s", consumer.ErrInvalid, q.Volume, Name)
	case !names.Subdomain(q.Consumer):
		return fmt.Errorf("%w: consumer %q is not a DNS-1123 subdomain", consumer.ErrInvalid, q.Consumer)
	}
	return nil
}

// consumerError translates what the driver says for a consumer.
func consumerError(err error) error {
	switch {
	case errors.Is(err, errAbsent):
		return fmt.Errorf("%w: %w", consumer.ErrNotFound, err)
	case errors.Is(err, errMounted), errors.Is(err, mounts.ErrBusy):
		return fmt.Errorf("%w: %w", consumer.ErrInUse, err)
	}
	return err
}
