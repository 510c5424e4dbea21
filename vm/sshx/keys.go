package sshx

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/ssh"
)

// Keys are one run's two key pairs. They are made for one guest and forgotten
// with it; nothing of them is ever written to a place that stays.
type Keys struct {
	HostPEM       []byte // the guest's private key, OpenSSH PEM
	AuthorizedKey []byte // the one client key it accepts, an authorized_keys line

	hostPublic ssh.PublicKey
	client     ssh.Signer
}

// NewKeys makes two new ed25519 key pairs.
func NewKeys() (*Keys, error) {
	_, host, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make host key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(host, "kbisect guest")
	if err != nil {
		return nil, fmt.Errorf("marshal host key: %w", err)
	}
	hostPublic, err := ssh.NewPublicKey(host.Public())
	if err != nil {
		return nil, fmt.Errorf("marshal host key: %w", err)
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make client key: %w", err)
	}
	client, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, fmt.Errorf("make client key: %w", err)
	}
	return &Keys{
		HostPEM:       pem.EncodeToMemory(block),
		AuthorizedKey: ssh.MarshalAuthorizedKey(client.PublicKey()),
		hostPublic:    hostPublic,
		client:        client,
	}, nil
}

// config is the client's side: one key, one accepted host key, and only what is
// quick on an emulated CPU. A channel that never leaves the host gains nothing
// from the post-quantum exchange that x/crypto prefers.
func (k *Keys) config(user string) *ssh.ClientConfig {
	return &ssh.ClientConfig{
		Config: ssh.Config{
			KeyExchanges: []string{ssh.KeyExchangeCurve25519},
			Ciphers:      []string{ssh.CipherChaCha20Poly1305, ssh.CipherAES128GCM},
		},
		User:              user,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(k.client)},
		HostKeyCallback:   ssh.FixedHostKey(k.hostPublic),
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
	}
}
