package worker

import (
	"context"

	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/wire"
	"tak-os.org/tak-replicated/raftlog/transport"
	"tak-os.org/tak-replicated/raftlog/transport/framed"
)

// serveClients makes s hand the connections of clients and operators to r's coordinator.
func serveClients(s *transport.Server, r *replica) {
	h := &operators{coord.Server{C: r.coord}, r}
	serve := func(ctx context.Context, in transport.Incoming) {
		peer := wire.Peer{
			Volume: in.Peer.Volume, Role: string(in.Peer.Role), Name: in.Peer.Name,
			Addr: in.Conn.RemoteAddr().String(),
		}
		_ = wire.Serve(ctx, in.Conn, peer, h) // why a client left is of no concern here
	}
	s.Handle(framed.KindClient, wire.Bounds(), serve)
	s.Handle(framed.KindOperator, wire.Bounds(), serve)
}
