package kubetest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/programs"
)

// startTimeout bounds the start of the two processes.
const startTimeout = 90 * time.Second

// Server is a running API server.
type Server struct {
	// URL is its address; CA its authority (PEM).
	URL string
	CA  []byte
	// Kubeconfig is a file for somebody who may do everything.
	Kubeconfig string

	dir  string
	pki  *authority
	port int
	etcd *process
	api  *process
	prog string
	tcp  string // etcd's client address
}

// Start starts both processes and waits until the server is ready. They end
// with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := startIn(t.TempDir(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

func startIn(dir string, logf programs.Logf) (*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	prog, err := programs.Path(ctx, programs.Kube, logf)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, prog: prog}
	if err := s.start(); err != nil {
		s.stop()
		return nil, fmt.Errorf("start API server: %w\n%s", err, s.logs())
	}
	return s, nil
}

// shared is the server of a package's tests that share one.
var shared struct {
	server *Server
	dir    string
}

// Shared returns a server that all tests of the package use, one after another. The package's
// TestMain has to be Main.
func Shared(t testing.TB) *Server {
	t.Helper()
	if shared.server != nil {
		return shared.server
	}
	dir, err := os.MkdirTemp("", "kubetest")
	if err != nil {
		t.Fatal(err)
	}
	shared.dir = dir
	if shared.server, err = startIn(dir, t.Logf); err != nil {
		t.Fatal(err)
	}
	return shared.server
}

// Main runs a package's tests and ends what they shared.
func Main(m *testing.M) int {
	code := m.Run()
	if shared.server != nil {
		shared.server.stop()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	return code
}

func (s *Server) start() error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	s.port = ports[0]
	s.tcp = fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	s.URL = fmt.Sprintf("https://127.0.0.1:%d", s.port)
	if s.pki, err = newAuthority(s.dir); err != nil {
		return err
	}
	s.CA = s.pki.pem
	if s.Kubeconfig, err = s.KubeconfigFor("admin", "system:masters"); err != nil {
		return err
	}
	s.etcd, err = s.run("etcd", "etcd", "--name", "test", "--data-dir", filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", s.tcp, "--advertise-client-urls", s.tcp,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "test="+peer)
	if err != nil {
		return err
	}
	return s.StartAPI()
}

// StartAPI starts the API server after StopAPI, and waits until it is ready.
func (s *Server) StartAPI() error {
	audit, err := s.auditArgs()
	if err != nil {
		return err
	}
	s.api, err = s.run("apiserver", append([]string{"kube-apiserver", "--etcd-servers", s.tcp,
		"--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(s.port), "--advertise-address", "127.0.0.1",
		"--tls-cert-file", s.pki.file("apiserver.crt"), "--tls-private-key-file", s.pki.file("apiserver.key"), "--client-ca-file", s.pki.file("ca.crt"),
		"--service-cluster-ip-range", "10.96.0.0/16", "--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", s.pki.file("sa.key"), "--service-account-signing-key-file", s.pki.file("sa.key"),
		"--authorization-mode", "Node,RBAC", "--allow-privileged=true", "--endpoint-reconciler-type", "none",
		// Nobody is there who takes the protection from claims that are not in use.
		"--disable-admission-plugins", "ServiceAccount,StorageObjectInUseProtection", "--profiling=false",
		// Nobody has to be kept from asking too much. And with a cache each list waits until that has heard of the newest
		// change, a tenth of a second perhaps.
		"--enable-priority-and-fairness=false", "--watch-cache=false"}, audit...)...)
	if err != nil {
		return err
	}
	return s.waitReady()
}

// StopAPI kills the API server; etcd goes on with its state.
func (s *Server) StopAPI() { s.api.kill() }

// Client is an HTTP client with the certificate of somebody who may do everything.
func (s *Server) Client() *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA)
	cert, err := tls.LoadX509KeyPair(s.pki.file("admin.crt"), s.pki.file("admin.key"))
	if err != nil {
		panic(err) // made by start
	}
	return &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}},
	}
}

func (s *Server) waitReady() error {
	client := s.Client()
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(startTimeout); ; {
		resp, err := client.Get(s.URL + "/readyz")
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("/readyz says %s", resp.Status)
		}
		for _, p := range []*process{s.etcd, s.api} {
			if p.ended() {
				return fmt.Errorf("%s has ended: %w", p.name, p.err)
			}
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *Server) stop() {
	for _, p := range []*process{s.api, s.etcd} {
		if p != nil {
			p.kill()
		}
	}
}

func (s *Server) logs() string {
	var all bytes.Buffer
	for _, name := range []string{"etcd", "apiserver"} {
		b, _ := os.ReadFile(filepath.Join(s.dir, name+".log"))
		fmt.Fprintf(&all, "--- %s\n%s\n", name, b[max(0, len(b)-3000):])
	}
	return all.String()
}

// process is a child that is ended by its id.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (s *Server) run(name string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(s.prog, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, s.dir
	// Memory for time: a test's machine has few processors, and a server of it lives for minutes.
	cmd.Env = append(os.Environ(), "GOGC=400", "GOMEMLIMIT=1500MiB")
	// A test that is killed takes its children along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() { p.err = cmd.Wait(); close(p.done) }()
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// freePorts finds ports that nobody uses now.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
