package network

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace with one TUN device. It lives as long as its
// thread, the processes in it and the device's descriptor.
type namespace struct {
	tun  *os.File
	work chan func()
}

const (
	device   = "tak0"
	mtuBytes = 9000
)

// newNamespace makes one whose device has an address of a network of 254.
func newNamespace(addr [4]byte) (*namespace, error) {
	ns := &namespace{work: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		err := ns.make(addr)
		made <- err
		if err != nil {
			return
		}
		for f := range ns.work {
			f()
		}
	}()
	return ns, <-made
}

// make moves the calling thread to a new namespace and sets that up.
func (ns *namespace) make(addr [4]byte) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("new network namespace: %w", err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	if err := setUp(fd, addr); err != nil {
		unix.Close(fd)
		return fmt.Errorf("set up the network: %w", err)
	}
	ns.tun = os.NewFile(uintptr(fd), device) // not before it has a device: it could not be polled
	return nil
}

// setUp gives the TUN descriptor a device with an address, and brings that and
// the loopback device up.
func setUp(tun int, addr [4]byte) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	set := func(fd int, name string, request uint, value func(*unix.Ifreq) error) error {
		r, err := unix.NewIfreq(name)
		if err == nil {
			err = value(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(fd, request, r)
		}
		return err
	}
	up := func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }
	return errors.Join(
		set(tun, device, unix.TUNSETIFF, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI); return nil }),
		set(s, device, unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(addr[:]) }),
		set(s, device, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }),
		set(s, device, unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtuBytes); return nil }),
		set(s, device, unix.SIOCSIFFLAGS, up),
		set(s, "lo", unix.SIOCSIFFLAGS, up),
	)
}

// start starts a process in the namespace.
func (ns *namespace) start(cmd *exec.Cmd) error {
	started := make(chan error)
	ns.work <- func() { started <- cmd.Start() }
	return <-started
}

// close lets go of the namespace, whose processes have ended.
func (ns *namespace) close() error {
	close(ns.work)
	return ns.tun.Close()
}
