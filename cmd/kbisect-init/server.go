package main

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Bounds of what a client can make init hold.
const (
	handshakeLimit = 30 * time.Second
	maxSessions    = 64
)

// errNotAllowed refuses every key but the run's own.
var errNotAllowed = errors.New("this key is not the run's")

// serverConfig reads the run's two keys. It offers only what is quick without
// the crypto instructions that an emulated CPU lacks: pushing the agent costs
// 0.4 s of a loaded CPU with ChaCha20, 0.5 to 1.0 s with AES-GCM. The channel
// never leaves the host, so post-quantum key exchange would buy nothing here.
func serverConfig(hostKey, authorizedKey string) (*ssh.ServerConfig, error) {
	pem, err := os.ReadFile(hostKey)
	if err != nil {
		return nil, fmt.Errorf("read host key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		return nil, fmt.Errorf("parse host key %s: %w", hostKey, err)
	}
	line, err := os.ReadFile(authorizedKey)
	if err != nil {
		return nil, fmt.Errorf("read authorized key: %w", err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(line)
	if err != nil {
		return nil, fmt.Errorf("parse authorized key %s: %w", authorizedKey, err)
	}
	want := key.Marshal()
	config := &ssh.ServerConfig{
		Config: ssh.Config{
			KeyExchanges: []string{ssh.KeyExchangeCurve25519},
			Ciphers:      []string{ssh.CipherChaCha20Poly1305},
		},
		MaxAuthTries: 3,
		PublicKeyCallback: func(_ ssh.ConnMetadata, got ssh.PublicKey) (*ssh.Permissions, error) {
			if subtle.ConstantTimeCompare(got.Marshal(), want) != 1 {
				return nil, errNotAllowed
			}
			return nil, nil
		},
	}
	config.AddHostKey(signer)
	return config, nil
}

// server serves one connection at a time.
type server struct {
	config   *ssh.ServerConfig
	reap     *reaper
	env      []string // of every command
	dir      string   // in which every command begins
	powerOff func()
	sysrq    string // path of /proc/sysrq-trigger
}

// serve runs a connection until it ends and leaves none of its commands behind.
// It returns errHangUp when the host closed it. conn stays the caller's.
func (s *server) serve(conn net.Conn) error {
	// The port has no deadlines of its own: closing it ends a handshake that
	// does not come to an end.
	limit := time.AfterFunc(handshakeLimit, func() { conn.Close() })
	sc, channels, requests, err := ssh.NewServerConn(conn, s.config)
	limit.Stop()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return errHangUp
		}
		return fmt.Errorf("handshake: %w", err)
	}
	var work sync.WaitGroup
	// Answers keepalives, which a host sends as requests that nobody knows.
	work.Go(func() { ssh.DiscardRequests(requests) })
	s.accept(&work, channels)
	err = sc.Wait()
	sc.Close()
	work.Wait()
	if err == nil || errors.Is(err, io.EOF) {
		return errHangUp
	}
	return err
}

// accept serves channels until the connection ends.
func (s *server) accept(work *sync.WaitGroup, channels <-chan ssh.NewChannel) {
	slots := make(chan struct{}, maxSessions)
	for nc := range channels {
		if nc.ChannelType() != "session" {
			_ = nc.Reject(ssh.UnknownChannelType, "only sessions are served")
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = nc.Reject(ssh.ResourceShortage, "too many sessions")
			continue
		}
		ch, requests, err := nc.Accept()
		if err != nil {
			<-slots
			continue // the connection is gone; channels ends next
		}
		work.Go(func() {
			defer func() { <-slots }()
			newSession(s, ch).run(requests)
		})
	}
}

// cutEnv splits NAME=value and reports whether NAME can be a variable's name.
func cutEnv(kv string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(kv, "=")
	if !ok || name == "" || strings.ContainsRune(kv, 0) {
		return name, value, false
	}
	return name, value, true
}
