package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Options says what to mount and how.
type Options struct {
	ID       string // names the mount with the keeper; unique in it
	Dir      string // absolute path of an existing directory
	Place    Place  // Dir, however links on the way to it change, and Dir has none; nil: it is found by its path
	FSName   string // first field of /proc/mounts
	Subtype  string // the type is fuse.Subtype
	ReadOnly bool
	NoSuid   bool // set-id bits have no effect
	NoDev    bool // device nodes do not open devices
	Spec     []byte
	Link     *Link // the keeper; nil: the mount ends with this process
	Log      *zap.Logger

	without uint64 // features not to ask for, as if the kernel were older
}

// Mount is one mounted filesystem and this process's end of it.
type Mount struct {
	log      *zap.Logger
	id       string
	dir      string
	spec     []byte
	dev      *os.File
	fd       int
	mem      memory
	shared   *os.File // mem's
	ledger   *Ledger
	features uint64
	resumed  bool // taken over from another process
	link     *Link
	close    sync.Once
	gone     chan struct{} // closed when the connection has ended
	names    chan struct{} // a place for each name that is being dropped
	dropping atomic.Int32  // with those that wait for a place
	memo     memo
	pages    pages
	observer Observer // nil for none
}

// Place is a directory that was found before.
type Place interface {
	// Folder opens it with O_PATH.
	Folder() (*os.File, error)
	// Unmount takes away what is mounted on top there.
	Unmount(flags int) error
}

// New mounts a filesystem. The kernel's requests wait until Serve answers them;
// no error leaves anything mounted.
func New(o Options) (*Mount, error) {
	if err := checkBazil(); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("mount %q: path is not absolute", o.Dir)
	}
	dir := filepath.Clean(o.Dir)
	if o.Place == nil {
		var err error
		if dir, err = realDir(dir); err != nil {
			return nil, fmt.Errorf("mount %s: %w", o.Dir, err)
		}
		o.Place = pathPlace(dir)
	}
	m := &Mount{log: o.Log, id: o.ID, dir: dir, spec: o.Spec, link: o.Link, fd: -1, gone: make(chan struct{}), names: make(chan struct{}, namesAtOnce)}
	if err := m.mount(o); err != nil {
		m.release()
		return nil, fmt.Errorf("mount %s: %w", o.Dir, err)
	}
	return m, nil
}

func (m *Mount) mount(o Options) error {
	fd, err := openDevice()
	if err != nil {
		return err
	}
	m.fd, m.dev = fd, os.NewFile(uintptr(fd), "/dev/fuse")
	if m.mem, m.shared, err = newMemory(); err != nil {
		return err
	}
	if err := mountOn(o, fd); err != nil {
		return err
	}
	if m.features, err = handshake(fd, m.mem, o.without); err != nil {
		return errors.Join(err, o.Place.Unmount(byForce))
	}
	m.ledger = newLedger(m.mem)
	m.raiseReadahead()
	if m.link != nil && m.Survives() {
		if err := m.link.put(m); err != nil {
			return errors.Join(err, o.Place.Unmount(byForce))
		}
	}
	return nil
}

func mountOn(o Options, fd int) error {
	on, err := o.Place.Folder()
	if err != nil {
		return err
	}
	defer on.Close()
	flags, data := mountArgs(o, fd)
	return unix.Mount(o.FSName, fmt.Sprintf("/proc/self/fd/%d", on.Fd()), mountType(o.Subtype), flags, data)
}

func openDevice() (int, error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/fuse: %w", err)
	}
	return fd, nil
}

func mountType(subtype string) string {
	if subtype == "" {
		return "fuse"
	}
	return "fuse." + subtype
}

// mountArgs are the flags and the data of mount(2). The kernel checks
// permissions, for every user.
func mountArgs(o Options, fd int) (flags uintptr, data string) {
	for _, f := range [...]struct {
		on  bool
		bit uintptr
	}{{o.ReadOnly, unix.MS_RDONLY}, {o.NoSuid, unix.MS_NOSUID}, {o.NoDev, unix.MS_NODEV}} {
		if f.on {
			flags |= f.bit
		}
	}
	return flags, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other,max_read=%d", fd, maxData)
}

// raiseReadahead lets the kernel read ahead in pieces of maxData instead of
// 128 KiB. Without it large reads are slower; nothing else changes.
func (m *Mount) raiseReadahead() {
	dev, err := mountedDevice(m.dir)
	if err != nil {
		return
	}
	path := "/sys/class/bdi/" + dev + "/read_ahead_kb"
	if err := os.WriteFile(path, []byte(fmt.Sprint(maxData>>10)), 0); err != nil {
		m.log.Debug("readahead stays at the kernel's default: " + err.Error())
	}
}

// ID is the name that the mount has with the keeper.
func (m *Mount) ID() string { return m.id }

// Dir is where the filesystem is mounted.
func (m *Mount) Dir() string { return m.dir }

// Spec is what was stored with the mount: how to build its session.
func (m *Mount) Spec() []byte { return m.spec }

// Ledger is the mount's memory for its session.
func (m *Mount) Ledger() *Ledger { return m.ledger }

// Resumed reports whether the mount was taken over from another process.
func (m *Mount) Resumed() bool { return m.resumed }

// Survives reports whether open files outlive this process: the kernel can send
// requests again (Linux 6.9). Without it the mount ends with the process, and
// every use of it gives ENOTCONN.
func (m *Mount) Survives() bool { return m.features&featResend != 0 }

// Gone is closed when the kernel's connection has ended. Serve still waits for
// the calls that it has made, and nobody for their answers.
func (m *Mount) Gone() <-chan struct{} { return m.gone }

// abortWithin is how long calls go on at most while the connection is being aborted.
const abortWithin = time.Second

// Serve answers the kernel's requests through caller until the filesystem is
// unmounted or ctx ends, which unmounts it by force. It is called once.
func (m *Mount) Serve(ctx context.Context, caller fsop.Caller) error {
	// Calls go on until the connection is aborted: the answer of one that was given up before would be an error of the
	// filesystem, where users are to learn that the mount is gone.
	calls, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	s := newServer(calls, m, caller)
	if m.resumed {
		if err := s.takeOver(); err != nil { // unmounted meanwhile: reading finds that out
			m.log.Warn("ask for unanswered requests", zap.String("dir", m.dir), zap.Error(err))
		}
	}
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(abortWithin, giveUp)
		_ = forceUnmount(m.dir)
		late.Stop()
		giveUp()
	})
	err := s.run()
	stop()
	if m.link != nil && m.Survives() {
		m.link.drop(m.id)
	}
	m.release()
	if err != nil {
		return errors.Join(fmt.Errorf("serve %s: %w", m.dir, err), forceUnmount(m.dir))
	}
	return nil
}

// release closes what the mount holds. Closing the last copy of the device ends
// the connection.
func (m *Mount) release() {
	m.close.Do(func() {
		if m.dev != nil {
			m.dev.Close()
		}
		if m.shared != nil {
			m.shared.Close()
		}
	})
}
