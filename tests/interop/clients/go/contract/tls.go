package contract

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// TLS makes a configuration of the settings: who is trusted, and a certificate of one's own; nil without TLS.
func TLS() (*tls.Config, error) {
	path := Settings["ssl.ca.location"]
	if path == "" {
		return nil, nil
	}
	trusted, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if path := Settings["ssl.certificate.location"]; path != "" {
		own, err := tls.LoadX509KeyPair(path, Settings["ssl.key.location"])
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}
