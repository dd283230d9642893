package coord

import (
	"fmt"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/wire"
)

var _ wire.Handler = (*Server)(nil)

// Server accepts clients' and operators' connections for a coordinator.
type Server struct{ C *Coordinator }

// Open implements wire.Handler.
func (s *Server) Open(peer wire.Peer, _ []byte, r *wire.Responder) (wire.ConnHandler, error) {
	l := s.C.Open(r, fmt.Sprintf("%s %s at %s", peer.Role, peer.Name, peer.Addr))
	l.operator = peer.Role == "operator"
	return wired{l}, nil
}

// wired is a link behind a real connection. An operator's may only ask and operate.
type wired struct{ *Link }

func (w wired) Closed(error) { w.Link.Closed() }

func (w wired) Request(id uint64, payload []byte) {
	if w.operator {
		if m, err := fsop.DecodeMessage(payload); err != nil || m.Status == nil && m.Operate == nil {
			w.refuse(id, fsop.Fail(fsop.Denied, "an operator's certificate only lets it ask for the status and operate"))
			return
		}
	}
	w.Link.Request(id, payload)
}
