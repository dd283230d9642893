package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/durable"
	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/csi/names"
)

// Name is the driver's name.
const Name = "csi.local.tak-os.org"

// TopologyKey is the node label by which volumes stay with their node: its value
// is the node's name, shortened with a hash if it is too long for a label.
const TopologyKey = Name + "/node"

// Config is what a Driver needs to know.
type Config struct {
	// Root is the folder of volumes and records.
	Root string
	// Node is the node's name in Kubernetes.
	Node string
	// KubeletDir is the folder below which volumes are published to Pods.
	KubeletDir string
	// ConsumerRoot is the folder beneath which acquired volumes appear; empty turns
	// acquisition off.
	ConsumerRoot string
	// Proc is a process table, in whose mount namespaces uses of a volume are looked
	// for: "/proc", or the machine's at another place.
	Proc string
	// FolderMode is a new volume's folder's; it belongs to root.
	FolderMode os.FileMode
}

// Driver has the volumes of a node. Safe for concurrent use.
type Driver struct {
	cfg     Config
	log     *zap.Logger
	release func()
	root    *os.Root
	volumes *os.Root
	records *durable.Records
	trash   *durable.Trash
	busy    durable.Keyed
	trouble trouble
	// step is told what was just made durable or mounted; tests crash there.
	step func(string)
}

// Open opens a node's volumes, and locks them until Close.
func Open(c Config, log *zap.Logger) (*Driver, error) {
	root, release, err := durable.OpenLocked(c.Root)
	if err != nil {
		return nil, err
	}
	d := &Driver{cfg: c, log: log, root: root, release: release, step: func(string) {}}
	if err := d.open(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Driver) open() (err error) {
	if d.records, err = durable.OpenRecords(d.root, "records"); err != nil {
		return err
	}
	if d.volumes, err = durable.OpenFolder(d.root, "volumes"); err != nil {
		return err
	}
	if d.trash, err = durable.OpenTrash(d.root, "trash", d.log); err != nil {
		return err
	}
	if d.cfg.ConsumerRoot == "" {
		return nil
	}
	return d.checkConsumerRoot()
}

// Close gives the root up. Calls and Run have to have ended.
func (d *Driver) Close() {
	if d.records != nil {
		d.records.Close()
	}
	if d.volumes != nil {
		d.volumes.Close()
	}
	if d.trash != nil {
		d.trash.Close()
	}
	d.release()
}

// Run removes what was deleted, until ctx ends.
func (d *Driver) Run(ctx context.Context) error { return d.trash.Run(ctx) }

// Recover finishes what a crash or restart interrupted. An acquisition that can't
// be mounted is logged and stays recorded; its consumer's next call tries again. So is a
// deletion that can't be finished; the provisioner's next call tries again.
func (d *Driver) Recover(ctx context.Context) error {
	all, err := d.all()
	if err != nil {
		return err
	}
	for _, r := range all {
		unlock, err := d.busy.Lock(ctx, r.ID)
		if err != nil {
			return err
		}
		switch {
		case r.Deleting:
			if err := d.finishDelete(r); err != nil {
				d.log.Error("deletion can't be finished", zap.String("volume", r.ID), zap.Error(err))
			}
		case r.AcquiredBy != "" && d.cfg.ConsumerRoot != "":
			if _, mountErr := d.mountConsumer(r); mountErr != nil {
				d.log.Error("acquired volume can't be mounted", zap.String("volume", r.ID), zap.Error(mountErr))
			}
		}
		unlock()
	}
	return nil
}

// The reasons for which a volume is refused. Each is wrapped with its particulars.
var (
	errAbsent    = errors.New("no such volume on this node")
	errDifferent = errors.New("exists with another size")
	errFull      = errors.New("not enough space")
	errDeleting  = errors.New("being deleted")
	errAcquired  = errors.New("acquired by a consumer")
	errMounted   = errors.New("mounted")
	errLost      = errors.New("the volume's folder is gone although its record is there; it is not made anew")
)

// idMost is the longest handle, in bytes.
const idMost = 128

// hashedPrefix begins the handles that are made of a hash.
const hashedPrefix = "volume-"

// idOf returns the handle of the volume with a name.
func idOf(name string) string {
	if len(name) <= idMost && names.Subdomain(name) && !strings.HasPrefix(name, hashedPrefix) {
		return name
	}
	return hashedPrefix + names.Hash(name)
}

func validID(id string) bool { return len(id) <= idMost && names.Subdomain(id) }

// lookup returns a volume's record; errAbsent if there is none.
func (d *Driver) lookup(id string) (*record, error) {
	if !validID(id) {
		return nil, fmt.Errorf("volume %.200q: %w", id, errAbsent)
	}
	r, err := d.read(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("volume %s: %w", id, errAbsent)
	case err != nil:
		return nil, err
	case r.Deleting:
		return nil, fmt.Errorf("volume %s: %w: %w", id, errAbsent, errDeleting)
	}
	return r, nil
}

func (d *Driver) read(id string) (*record, error) {
	b, err := d.records.Read(id)
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(b)
	if err == nil && r.ID != id {
		err = fmt.Errorf("it is of volume %s", r.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", filepath.Join(d.cfg.Root, "records", id), err)
	}
	return r, nil
}

func (d *Driver) write(r *record) error {
	b, err := r.encode()
	if err != nil {
		return err
	}
	return d.records.Write(r.ID, b)
}

// folder opens a volume's folder.
func (d *Driver) folder(id string) (*os.File, error) {
	info, err := d.volumes.Lstat(id)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, fmt.Errorf("volume %s: %w", id, errLost)
	}
	if err != nil {
		return nil, err
	}
	return d.volumes.Open(id)
}

// create makes a volume, or finds the one that has the name.
func (d *Driver) create(ctx context.Context, name string, requiredBytes, limitBytes int64) (*record, error) {
	id := idOf(name)
	unlock, err := d.busy.Lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := d.read(id)
	switch {
	case err == nil && r.Deleting:
		return nil, fmt.Errorf("volume %s: %w", id, errDeleting)
	case err == nil && (r.CapacityBytes < requiredBytes || limitBytes > 0 && r.CapacityBytes > limitBytes):
		return nil, fmt.Errorf("volume %s: %w: %d bytes", id, errDifferent, r.CapacityBytes)
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return r, err
	}
	free, err := d.free()
	if err != nil {
		return nil, err
	}
	if requiredBytes > free {
		return nil, fmt.Errorf("%w on node %s: %d bytes are asked for, %d are free", errFull, d.cfg.Node, requiredBytes, free)
	}
	if err := d.makeFolder(id); err != nil {
		return nil, err
	}
	d.step("folder made")
	r = &record{Version: recordVersion, ID: id, Name: name, CapacityBytes: requiredBytes, Created: time.Now().UTC()}
	if err := d.write(r); err != nil {
		return nil, err
	}
	d.step("volume recorded")
	d.log.Info("volume created", zap.String("volume", id))
	return r, nil
}

// makeFolder makes a new volume's folder. One that is left of a creation that was
// cut off is empty; any other holds files that nobody here can account for.
func (d *Driver) makeFolder(id string) error {
	if err := durable.MakeFolder(d.volumes, id, d.cfg.FolderMode); err != nil {
		return err
	}
	f, err := d.volumes.Open(id)
	if err != nil {
		return err
	}
	defer f.Close()
	if found, _ := f.Readdirnames(1); len(found) > 0 {
		return fmt.Errorf("folder %s has files and no record: move it away", filepath.Join(d.cfg.Root, "volumes", id))
	}
	return nil
}

// delete removes a volume for good. One that is not there is deleted already.
func (d *Driver) delete(ctx context.Context, id string) error {
	if !validID(id) {
		return nil
	}
	unlock, err := d.busy.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := d.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if r.Deleting {
		return d.finishDelete(r)
	}
	if r.AcquiredBy != "" {
		return fmt.Errorf("volume %s: %w: %s", id, errAcquired, r.AcquiredBy)
	}
	if err := d.unused(id); err != nil && !errors.Is(err, errLost) {
		return err
	}
	r.Deleting = true
	if err := d.write(r); err != nil {
		return err
	}
	d.step("deletion recorded")
	return d.finishDelete(r)
}

// finishDelete goes on with a recorded deletion.
func (d *Driver) finishDelete(r *record) error {
	if err := d.trash.Take(d.volumes, r.ID); err != nil {
		return err
	}
	d.step("folder in the trash")
	if err := d.records.Remove(r.ID); err != nil {
		return err
	}
	d.step("record removed")
	d.log.Info("volume deleted", zap.String("volume", r.ID))
	return nil
}

// unused returns errMounted and where, if the volume is mounted anywhere that can
// be seen.
func (d *Driver) unused(id string) error {
	f, err := d.folder(id)
	if err != nil {
		return err
	}
	defer f.Close()
	uses, err := mounts.Uses(f, d.cfg.Proc)
	if err != nil {
		return err
	}
	if len(uses) > 0 {
		return fmt.Errorf("volume %s: %w at %v", id, errMounted, uses[0])
	}
	return nil
}

// free returns how many bytes a new volume could take.
func (d *Driver) free() (int64, error) {
	f, err := d.volumes.Open(".")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	u, err := mounts.UsageOf(f)
	return u.BytesFree, err
}
