package consumer

import (
	"context"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"tak-os.org/tak-replicated/csi/server"
)

// NewServer returns a server of s, for [server.Serve]. observe may be nil.
func NewServer(s Service, log *zap.Logger, observe server.Observer) *grpc.Server {
	g := server.New(log, observe, grpc.ForceServerCodec(jsonCodec{}))
	g.RegisterService(&serviceDesc, s)
	return g
}

var serviceDesc = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*Service)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "Acquire", Handler: handler(acquireMethod, func(ctx context.Context, s Service, r *Request) (*Acquisition, error) {
			a, err := s.Acquire(ctx, *r)
			return &a, err
		})},
		{MethodName: "Release", Handler: handler(releaseMethod, func(ctx context.Context, s Service, r *Request) (*releaseAnswer, error) {
			return &releaseAnswer{}, s.Release(ctx, *r)
		})},
		{MethodName: "List", Handler: handler(listMethod, func(ctx context.Context, s Service, _ *listRequest) (*listAnswer, error) {
			l, err := s.List(ctx)
			return &listAnswer{l}, err
		})},
	},
}

// handler makes what gRPC calls of a function on a Service.
func handler[In, Out any](full string, do func(context.Context, Service, *In) (*Out, error)) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := new(In)
		if err := decode(in); err != nil {
			return nil, err
		}
		call := func(ctx context.Context, req any) (any, error) {
			out, err := do(ctx, srv.(Service), req.(*In))
			if err != nil {
				return nil, toStatus(err)
			}
			return out, nil
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: full}, call)
	}
}
