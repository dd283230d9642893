package power

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is a disk whose power can be cut, with ext4 on it. One goroutine uses it.
type Disk struct {
	Root string // where ext4 is mounted while the power is on

	medium string // file with what is durable
	served string // the file that the disk's process serves
	lag    time.Duration
	proc   *exec.Cmd
	in     *json.Encoder
	stdin  io.Closer
	out    *json.Decoder
}

// NewDisk makes a disk of so many bytes in a folder, with an empty ext4. It is
// off. A lag other than 0 makes it a liar: what a flush covers is durable so much
// later.
func NewDisk(dir string, size int64, lag time.Duration) (*Disk, error) {
	d := &Disk{
		Root: filepath.Join(dir, "root"), medium: filepath.Join(dir, "medium"), served: filepath.Join(dir, "served"), lag: lag,
	}
	if err := os.MkdirAll(d.Root, 0o755); err != nil {
		return nil, err
	}
	for path, bytes := range map[string]int64{d.medium: size, d.served: 0} {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(f.Truncate(bytes), f.Close()); err != nil {
			return nil, err
		}
	}
	out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", d.medium).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return d, nil
}

// On turns the disk on, and mounts its ext4 at Root.
func (d *Disk) On() error {
	if err := d.serve(); err != nil {
		return err
	}
	if err := d.attach(); err != nil {
		return errors.Join(err, d.end())
	}
	return nil
}

// serve starts the disk's process.
func (d *Disk) serve() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	config, err := json.Marshal(diskConfig{d.medium, d.served, d.lag})
	if err != nil {
		return err
	}
	d.proc = exec.Command(exe)
	d.proc.Env = append(os.Environ(), diskEnv+"="+string(config))
	d.proc.Stderr = os.Stderr
	stdin, err := d.proc.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := d.proc.StdoutPipe()
	if err != nil {
		return err
	}
	if err := d.proc.Start(); err != nil {
		return err
	}
	d.in, d.stdin, d.out = json.NewEncoder(stdin), stdin, json.NewDecoder(bufio.NewReader(stdout))
	if _, err := d.answer(); err != nil {
		return errors.Join(err, d.end())
	}
	return nil
}

// attach puts a loop device on the served file, and mounts it.
func (d *Disk) attach() error {
	f, err := os.OpenFile(d.served, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	loop, err := loopOn(f)
	if err != nil {
		return err
	}
	defer loop.Close() // the mount keeps it until it ends
	if err := unix.Mount(loop.Name(), d.Root, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", loop.Name(), d.Root, err)
	}
	return nil
}

// loopTries bounds how often another one that takes a loop device is lost against.
const loopTries = 100

// loopOn returns a loop device on a file, which is free again when its last user
// has closed it.
func loopOn(f *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range loopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a loop device: %w", err)
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(f.Fd()), Size: sectorBytes, Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("configure %s: %w", loop.Name(), err)
		}
	}
	return nil, errors.New("no free loop device")
}

// Cut takes the power away at once. What had the disk in use goes on, without
// it, until Off.
func (d *Disk) Cut(left Survivors, seed uint64) error {
	if err := d.in.Encode(diskCommand{Cut: true, Left: left, Seed: seed}); err != nil {
		return err
	}
	_, err := d.answer()
	return err
}

// offLimit bounds how long those who were killed may still have the disk in use.
const offLimit = 20 * time.Second

// Off unmounts the disk, whose users have ended, and ends its process. It returns
// what a cut before it has cost; without one everything is written back first.
func (d *Disk) Off() (Loss, error) {
	if d.proc == nil {
		return Loss{}, nil
	}
	var err error
	for end := time.Now().Add(offLimit); ; time.Sleep(10 * time.Millisecond) {
		if err = unix.Unmount(d.Root, 0); !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("unmount %s: %w", d.Root, err), unix.Unmount(d.Root, unix.MNT_DETACH))
	}
	if served := d.unserve(); served != nil {
		return Loss{}, errors.Join(err, served, d.end())
	}
	if sent := d.in.Encode(diskCommand{}); sent != nil {
		return Loss{}, errors.Join(err, sent, d.end())
	}
	loss, answered := d.answer()
	return loss, errors.Join(err, answered, d.end())
}

// unserve takes the served file away; the loop device lets go of it a moment
// after it was unmounted.
func (d *Disk) unserve() error {
	for end := time.Now().Add(offLimit); ; time.Sleep(5 * time.Millisecond) {
		if err := unix.Unmount(d.served, 0); !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}

// end ends the disk's process.
func (d *Disk) end() error {
	d.stdin.Close()
	kill := time.AfterFunc(5*time.Second, func() { _ = d.proc.Process.Kill() })
	defer kill.Stop()
	err := d.proc.Wait()
	d.proc = nil
	_ = unix.Unmount(d.served, unix.MNT_DETACH) // a no-op after a clean end
	return err
}

func (d *Disk) answer() (Loss, error) {
	var a diskAnswer
	if err := d.out.Decode(&a); err != nil {
		return Loss{}, fmt.Errorf("the disk's process: %w", err)
	}
	if a.Error != "" {
		return Loss{}, errors.New(a.Error)
	}
	return a.Loss, nil
}
