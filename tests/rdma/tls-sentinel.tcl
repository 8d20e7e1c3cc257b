# Sentinels that reach servers by TLS over RDMA. seconds: 5

if {[skip_without_tls "Sentinels by TLS over RDMA"]} return
set certificates [list tls-cert-file [crt server.crt] tls-key-file [crt server.key] tls-ca-cert-file [crt ca.crt] \
    protected-mode no]

# A server at a port for TCP, one for TLS and one for RDMA, and a Sentinel that is given the one for RDMA. With `body`,
# `r -1` is the server, `r` the Sentinel.
proc start_pair {tls_rdma body} {
    lassign [list [free_port] [free_port] [free_port]] ::tls_port ::rdma_port ::sentinel_rdma_port
    set settings [list bind [join [lsort -unique [list 127.0.0.1 $::opt(rdma_host)]]] rdma-bind $::opt(rdma_host) \
        tls-rdma $tls_rdma {*}$::certificates]
    set server [list no_rdma 1 auth secret overrides \
        [list tls-port $::tls_port rdma-port $::rdma_port requirepass secret {*}$settings]]
    set config [list "sentinel monitor group $::opt(rdma_host) $::rdma_port 1" "sentinel auth-pass group secret" \
        "sentinel down-after-milliseconds group 500" "sentinel rdma yes" "tls-replication yes"]
    set sentinel [list no_rdma 1 args --sentinel config $config \
        overrides [list rdma-port $::sentinel_rdma_port {*}$settings]]
    uplevel 1 [list start_server $server [list start_server $sentinel $body]]
}
proc flags {} {dict get [r sentinel primary group] flags}
proc connections {} {dict get [info_dict [r -1 info stats]] total_connections_received}

start_pair yes {
    test "a Sentinel with tls-replication and sentinel rdma connects by TLS over RDMA" {
        wait_for_condition 10000 {
            [regexp -all {name=sentinel-[0-9a-f]{8}-(?:cmd|pubsub) [^\n]*transport=rdma-tls} [r -1 client list]] == 2
        } "the Sentinel is not connected: [r sentinel explain group]"
        wait_for_condition 10000 {[flags] eq "master"} "the server is down"
    }

    test "a client that asks a Sentinel by TLS over RDMA is told the primary's RDMA port" {
        r sentinel remove group
        r sentinel monitor group $::opt(rdma_host) $::tls_port 1
        r sentinel set group auth-pass secret
        assert_equal [list $::opt(rdma_host) $::tls_port] [r sentinel get-primary-addr-by-name group]
        set cli [list {*}$::opt(launcher) [tool valkey-cli] --rdma --tls -h $::opt(rdma_host) -p $::sentinel_rdma_port \
            --cacert [crt ca.crt] --cert [crt client.crt] --key [crt client.key] \
            sentinel get-primary-addr-by-name group]
        wait_for_condition 10000 {[exec {*}$cli] eq "$::opt(rdma_host)\n$::rdma_port"} "another port is told"
    }
}

start_pair no {
    test "a Sentinel with tls-replication sends nothing by RDMA in clear text" {
        wait_for_condition 10000 {[string match *s_down* [flags]]} "the server is up"
        set received [connections]
        # A Sentinel that is connected makes two connections, and no further one.
        wait_for_condition 30000 {[connections] >= $received + 3} "no further attempts"
        assert_not_match *client|setname* [r -1 info commandstats]
        assert_match *s_down* [flags]
    }
}
