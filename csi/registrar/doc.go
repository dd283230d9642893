// Package registrar registers CSI drivers with the kubelet of their node, in the
// place of the usual sidecar.
//
// # What it owns
//
// A socket a driver in the kubelet's registration folder, named DRIVER-reg.sock. The
// kubelet finds it, asks who is there, and says whether it took the driver in. When
// the socket goes, the kubelet forgets the driver: so one is made only when the driver
// has answered, and again after a while when the kubelet refused it, and a driver's
// trouble is nobody else's.
//
// # What it does not own
//
// The drivers. It asks each for its name, once, and does not watch it afterwards: the
// kubelet finds out by itself when a driver does not answer.
//
// Nothing is kept. A crash leaves the sockets' files, so that the drivers stay
// registered; the next start replaces them, and the kubelet registers the drivers anew.
package registrar
