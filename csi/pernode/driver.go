package pernode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/durable"
	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/csi/names"
)

// Name is the driver's name.
const Name = "per-node.liken.sh"

// Config is what a Driver needs to know.
type Config struct {
	// Root is the folder of copies and records.
	Root string
	// Node is the node's name in Kubernetes.
	Node string
	// KubeletDir is the folder below which copies are published to Pods.
	KubeletDir string
	// Proc is a process table, in whose mount namespaces uses of a copy are looked
	// for: "/proc", or the machine's at another place.
	Proc string
	// FolderMode is a new copy's folder's; it belongs to root.
	FolderMode os.FileMode
	// LookEvery is how often copies without a PersistentVolume are looked for, beside
	// when the cluster says that one may have gone.
	LookEvery time.Duration
}

// bootID is where Linux names the present boot.
const bootID = "/proc/sys/kernel/random/boot_id"

// Driver has the copies of a node. Safe for concurrent use.
type Driver struct {
	cfg     Config
	cluster Cluster
	log     *zap.Logger
	boot    string
	release func()
	root    *os.Root
	copies  *os.Root
	records *durable.Records
	trash   *durable.Trash
	busy    durable.Keyed
	woken   chan struct{}
	mu      struct {
		sync.Mutex
		waiting map[string]struct{} // handles to look at
		all     bool                // or all of them
	}
	// step is told what was just made durable or mounted; tests crash there.
	step func(string)
}

// Open opens a node's copies, and locks them until Close.
func Open(c Config, cluster Cluster, log *zap.Logger) (*Driver, error) {
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return nil, fmt.Errorf("which boot this is: %w", err)
	}
	root, release, err := durable.OpenLocked(c.Root)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		cfg: c, cluster: cluster, log: log, boot: strings.TrimSpace(string(boot)), root: root, release: release,
		woken: make(chan struct{}, 1), step: func(string) {},
	}
	d.mu.waiting = map[string]struct{}{}
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
	if d.copies, err = durable.OpenFolder(d.root, "volumes"); err != nil {
		return err
	}
	d.trash, err = durable.OpenTrash(d.root, "trash", d.log)
	return err
}

// Close gives the root up. Calls and Run have to have ended.
func (d *Driver) Close() {
	if d.records != nil {
		d.records.Close()
	}
	if d.copies != nil {
		d.copies.Close()
	}
	if d.trash != nil {
		d.trash.Close()
	}
	d.release()
}

// The reasons for which a call is refused. Each is wrapped with its particulars.
var (
	errHandle   = errors.New("not a DNS-1123 subdomain")
	errNoAnswer = errors.New("the API server does not answer")
	errMounted  = errors.New("mounted")
	errNoCopy   = errors.New("no copy on this node")
)

// read returns a handle's record; nil if there is none.
func (d *Driver) read(handle string) (*record, error) {
	b, err := d.records.Read(handle)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(b)
	if err == nil && r.Handle != handle {
		err = fmt.Errorf("it is of handle %s", r.Handle)
	}
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", filepath.Join(d.cfg.Root, "records", handle), err)
	}
	return r, nil
}

func (d *Driver) write(r *record) error {
	b, err := r.encode()
	if err != nil {
		return err
	}
	return d.records.Write(r.Handle, b)
}

// check refuses handles and targets that nothing can be done with.
func (d *Driver) check(handle, target string) error {
	if !names.Subdomain(handle) {
		return fmt.Errorf("handle %.200q: %w", handle, errHandle)
	}
	t, err := d.targets().Open(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		t.Close()
	}
	return err
}

// targets is where Pods' targets lie.
func (d *Driver) targets() mounts.Root { return mounts.Root(d.cfg.KubeletDir) }

// folder opens a copy's folder.
func (d *Driver) folder(handle, uid string) (*os.File, error) {
	f, err := d.openCopy(handle, uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("handle %s: %w", handle, errNoCopy)
	}
	return f, err
}

func (d *Driver) openCopy(handle, uid string) (*os.File, error) {
	of, err := d.copies.OpenRoot(handle)
	if err != nil {
		return nil, err
	}
	defer of.Close()
	info, err := of.Lstat(uid)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("copy %s of handle %s is not a folder", uid, handle)
	}
	return of.Open(uid)
}

// makeCopy makes a copy's folder if it is not there, and opens it.
func (d *Driver) makeCopy(handle, uid string) (*os.File, error) {
	of, err := durable.OpenFolder(d.copies, handle)
	if err != nil {
		return nil, err
	}
	defer of.Close()
	if err := makeOnce(of, uid, d.cfg.FolderMode); err != nil {
		return nil, err
	}
	return d.openCopy(handle, uid)
}

// makeOnce makes a folder with a mode. The mode of one that is there is its
// workload's.
func makeOnce(root *os.Root, name string, mode os.FileMode) error {
	if info, err := root.Lstat(name); err == nil && info.IsDir() {
		return nil
	}
	return durable.MakeFolder(root, name, mode)
}

// mounted reports whether a copy is mounted anywhere that can be seen. A copy that
// is not there is not.
func (d *Driver) mounted(handle, uid string) (bool, error) {
	f, err := d.folder(handle, uid)
	if errors.Is(err, errNoCopy) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	uses, err := mounts.Uses(f, d.cfg.Proc)
	return len(uses) > 0, err
}

// Summary is what a node's copies add up to.
type Summary struct {
	Copies, Held int
	Unreadable   int // records; the log tells of them when copies are looked at
}

// Summary reads all records.
func (d *Driver) Summary() (Summary, error) {
	handles, err := d.records.Names()
	if err != nil {
		return Summary{}, err
	}
	var s Summary
	for _, handle := range handles {
		r, err := d.read(handle)
		if err != nil {
			s.Unreadable++
			continue
		}
		if r == nil {
			continue // removed meanwhile
		}
		s.Copies++
		if r.Hold != nil {
			s.Held++
		}
	}
	return s, nil
}

// Ready says why the driver can't serve: the folder of its records can't be read. A single
// record that can't be is no reason.
func (d *Driver) Ready() error {
	_, err := d.Summary()
	return err
}
