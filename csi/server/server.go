package server

import (
	"context"
	"fmt"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Observer is told of each call when it has been answered: the method's last name
// and the code's. Called concurrently.
type Observer func(method, code string, took time.Duration)

// Bounds of every server.
const (
	requestBytesMost  = 1 << 20
	connectionStreams = 128
	headerBytesMost   = 16 << 10
	// answerBytesMost bounds what an error says: it may repeat what was asked.
	answerBytesMost = 900
	// connectPatience bounds the handshake of a connection.
	connectPatience = 5 * time.Second
)

// New returns a server that answers root and the own user, logs what fails, and
// survives a handler's panic. observe may be nil. options come after its own.
func New(log *zap.Logger, observe Observer, options ...grpc.ServerOption) *grpc.Server {
	if observe == nil {
		observe = func(string, string, time.Duration) {}
	}
	c := calls{log: log, observe: observe}
	return grpc.NewServer(append([]grpc.ServerOption{
		grpc.Creds(PeerCredentials()),
		grpc.MaxRecvMsgSize(requestBytesMost),
		grpc.MaxConcurrentStreams(connectionStreams),
		grpc.MaxHeaderListSize(headerBytesMost),
		grpc.ConnectionTimeout(connectPatience),
		grpc.UnaryInterceptor(c.intercept),
	}, options...)...)
}

// reconnect has a server that was away for long be found soon after it is back: to try costs nothing on a Unix socket.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
	MinConnectTimeout: connectPatience,
}

// Dial returns a connection to a server on a Unix socket. It connects when the
// first call is made, and again within seconds when the server comes back.
func Dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(reconnect),
		grpc.WithAuthority("localhost"))
}

// calls is what every call goes through.
type calls struct {
	log     *zap.Logger
	observe Observer
}

func (c calls) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	begin := time.Now()
	resp, err := c.guard(ctx, req, method, handle)
	took := time.Since(begin)
	code := status.Code(err)
	c.observe(method, code.String(), took)
	if err == nil {
		c.log.Debug("call answered", zap.String("method", method), zap.Duration("took", took))
		return resp, nil
	}
	fields := []zap.Field{zap.String("method", method), zap.Stringer("code", code), zap.Duration("took", took), zap.String("error", status.Convert(err).Message())}
	switch code {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		c.log.Error("call failed", fields...)
	case codes.Unimplemented, codes.NotFound, codes.Canceled:
		c.log.Debug("call refused", fields...)
	default:
		c.log.Info("call refused", fields...)
	}
	return nil, err
}

// guard turns a panic of the handler into an answer. A caller that gave up gets
// its own reason.
func (c calls) guard(ctx context.Context, req any, method string, handle grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("handler panicked", zap.String("method", method), zap.String("panic", fmt.Sprint(r)), zap.ByteString("stack", debug.Stack()))
			resp, err = nil, status.Errorf(codes.Internal, "%s: the driver had a fault; its log says more", method)
		}
	}()
	resp, err = handle(ctx, req)
	if err != nil {
		if _, ok := status.FromError(err); !ok {
			err = status.FromContextError(err).Err()
		}
		if s := status.Convert(err); len(s.Message()) > answerBytesMost {
			err = status.Error(s.Code(), strings.ToValidUTF8(s.Message()[:answerBytesMost], "")+"…")
		}
	}
	return resp, err
}
