package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"
)

// pair is a keeper and the supervisor of its serving processes, neither the other's
// child.
type pair struct {
	instance           string
	keeper, supervisor *exec.Cmd
}

// pairs are pairs that have one mount in turn.
type pairs struct {
	*handover
	env []string
	*pair
	past []*exec.Cmd // processes whose time is over
	n    int
}

func startPairs(t *testing.T) *pairs {
	needFuse(t)
	b := newBackend(t, newOneTree(t))
	p := &pairs{handover: &handover{backend: b, dir: mountPoint(t), socket: filepath.Join(t.TempDir(), "keeper")}}
	p.env = []string{socketVar + "=" + p.socket, backendVar + "=" + b.path, dirVar + "=" + p.dir}
	t.Cleanup(func() {
		for _, cmd := range append(p.past, p.supervisor, p.keeper) { // nobody mounts again
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // some have been waited for
		}
		for Detach(p.dir) == nil { // what is left is dead
		}
	})
	p.next(t, "keeper")
	p.await(t, func(*KeeperStatus) bool { _, err := mountedDevice(p.dir); return err == nil })
	watchdog(t, p.dir, 2*time.Minute)
	settle(t, p.dir)
	return p
}

// next starts another pair, its supervisor first.
func (p *pairs) next(t *testing.T, keeper string) {
	t.Helper()
	if p.pair != nil {
		p.past = append(p.past, p.keeper, p.supervisor)
	}
	p.n++
	p.pair = &pair{instance: fmt.Sprint("pod-", p.n)}
	p.supervisor = p.startRole(t, "supervisor")
	p.keeper = p.startRole(t, keeper)
	p.await(t, func(s *KeeperStatus) bool { return s.Instance == p.instance && s.Server != 0 })
}

func (p *pairs) startRole(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	cmd := role(name, append(p.env, instanceVar+"="+p.instance)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	must(t, cmd.Start())
	return cmd
}

// killAll kills the supervisor, the serving process as well if that is wanted, and
// starts another supervisor.
func (p *pairs) killAll(t *testing.T, both bool) {
	t.Helper()
	s := p.await(t, func(s *KeeperStatus) bool { return s.Server != 0 })
	must(t, p.supervisor.Process.Kill())
	if both {
		_ = syscall.Kill(s.Server, syscall.SIGKILL) // it dies with the other anyway
	}
	p.past = append(p.past, p.supervisor)
	p.supervisor = p.startRole(t, "supervisor")
	p.await(t, func(n *KeeperStatus) bool { return n.Server != 0 && n.Server != s.Server })
}

// TestApartUnderLoad kills serving processes, supervisors, both, and replaces pairs,
// under load: no application sees an error, and everything happens once.
func TestApartUnderLoad(t *testing.T) {
	p := startPairs(t)
	load := role("load", dirVar+"="+p.dir)
	load.Stderr = os.Stderr
	out := new(strings.Builder)
	load.Stdout = out
	must(t, load.Start())
	for i := range 8 {
		time.Sleep(time.Duration(20+80*(i%3)) * time.Millisecond) // somewhere in the load
		switch i % 4 {
		case 0:
			p.kill(t)
		case 1, 2:
			p.killAll(t, i%4 == 1)
		case 3:
			p.next(t, "successor")
		}
	}
	s := p.await(t, func(s *KeeperStatus) bool { return s.Server != 0 })
	time.Sleep(200 * time.Millisecond) // the supervisors before are still there, and leave this one alone
	if now := p.await(t, func(*KeeperStatus) bool { return true }); now.Server != s.Server || now.Restarts != s.Restarts {
		t.Errorf("the keeper had %+v, and now %+v", s, now)
	}
	if out, err := exec.Command("touch", filepath.Join(p.dir, "stop")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, load.Wait())
	t.Log(out)
}

// TestNobodyServesWhileHandingOver has a serving process come while the mounts are in
// the successor's hands and not yet its own: two would read from one device.
func TestNobodyServesWhileHandingOver(t *testing.T) {
	p := startPairs(t)
	before := p.await(t, func(s *KeeperStatus) bool { return s.Server != 0 })
	log := zaptest.NewLogger(t)
	for instance, want := range map[string]string{"": "serves the keeper of", "pod-2": "serves the keeper of"} {
		if _, _, err := DialKeeper(t.Context(), p.socket, instance, log); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("hello for the keeper of %q: %v", instance, err)
		}
	}
	conn := dialKeeper(t, p.socket)
	must(t, sendMessage(conn, &message{Op: opSucceed}))
	for op := ""; op != opEnd; {
		m, files, err := recvMessage(conn)
		must(t, err)
		closeAll(files)
		op = m.Op
	}
	if _, _, err := DialKeeper(t.Context(), p.socket, p.instance, log); err == nil || !strings.Contains(err.Error(), "handing over") {
		t.Errorf("hello during the handover: %v", err)
	}
	if s := p.await(t, func(*KeeperStatus) bool { return true }); !s.Closed || s.Server != 0 {
		t.Errorf("during the handover: %+v", s)
	}
	conn.Close()
	p.await(t, func(s *KeeperStatus) bool { return s.PID == before.PID && s.Server != 0 && s.Server != before.Server })
	if out, err := exec.Command("touch", filepath.Join(p.dir, "f")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestApartKeeperDies kills the keeper: the mount ends at once for who uses it, and
// the supervisor has another made when there is a keeper again.
func TestApartKeeperDies(t *testing.T) {
	p := startPairs(t)
	fd := open(t, filepath.Join(p.dir, "f"), unix.O_RDWR|unix.O_CREAT)
	must(t, p.keeper.Process.Kill())
	var st unix.Stat_t
	for deadline := time.Now().Add(10 * time.Second); unix.Fstat(fd, &st) != unix.ENOTCONN; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the mount goes on without a keeper")
		}
	}
	p.past = append(p.past, p.keeper)
	p.keeper = p.startRole(t, "keeper")
	p.await(t, func(s *KeeperStatus) bool {
		return len(s.Mounts) == 1 && unix.Stat(filepath.Join(p.dir, "f"), &st) == nil
	})
}

// TestApartEnds ends keeper and supervisor, in each order and at once: the mount is
// gone, and both say that all is well.
func TestApartEnds(t *testing.T) {
	for name, order := range map[string]func(p *pairs) []*exec.Cmd{
		"keeper":     func(p *pairs) []*exec.Cmd { return []*exec.Cmd{p.keeper} },
		"both":       func(p *pairs) []*exec.Cmd { return []*exec.Cmd{p.keeper, p.supervisor} },
		"both again": func(p *pairs) []*exec.Cmd { return []*exec.Cmd{p.supervisor, p.keeper} },
	} {
		t.Run(name, func(t *testing.T) {
			p := startPairs(t)
			told := order(p)
			for _, cmd := range told {
				must(t, cmd.Process.Signal(syscall.SIGTERM))
			}
			for _, cmd := range told {
				if err := cmd.Wait(); err != nil {
					t.Error(err)
				}
			}
			if dev, err := mountedDevice(p.dir); err == nil {
				t.Errorf("still mounted as %s", dev)
			}
		})
	}
}
