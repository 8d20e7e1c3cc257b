/* The connection manager. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "rig.h"

static struct rdma_cm_id *new_id(struct end *e) {
    struct rdma_cm_id *id;
    if (!e->events) CHECK((e->events = rdma_create_event_channel()));
    CHECK(!rdma_create_id(e->events, &id, NULL, RDMA_PS_TCP));
    return id;
}

static int bind_to(struct rdma_cm_id *id, const char *addr, uint16_t port_be) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = port_be};
    inet_pton(AF_INET, addr, &in.sin_addr);
    return rdma_bind_addr(id, (struct sockaddr *)&in);
}

static int bind_to6(struct rdma_cm_id *id, const char *addr, uint16_t port_be) {
    struct sockaddr_in6 in = {.sin6_family = AF_INET6, .sin6_port = port_be};
    inet_pton(AF_INET6, addr, &in.sin6_addr);
    return rdma_bind_addr(id, (struct sockaddr *)&in);
}

TEST(port_zero_is_given_a_free_port_and_a_used_one_is_refused) {
    struct end e = {0};
    struct rdma_cm_id *a = new_id(&e), *b = new_id(&e), *c = new_id(&e);
    CHECK(!bind_to(a, "127.0.0.1", 0));
    uint16_t port = rdma_get_src_port(a);
    CHECK(port);
    FAILS(bind_to(b, "127.0.0.1", port) == -1, EADDRINUSE);
    FAILS(bind_to(b, "0.0.0.0", port) == -1, EADDRINUSE);
    CHECK(!bind_to(b, "127.0.0.2", port)); /* another address */
    FAILS(bind_to(c, "0.0.0.0", port) == -1, EADDRINUSE);
    CHECK(!rdma_destroy_id(a));
    CHECK(!rdma_destroy_id(b));
    CHECK(!bind_to(c, "0.0.0.0", port)); /* free again */
    struct rdma_cm_id *d = new_id(&e);
    FAILS(bind_to(d, "127.0.0.1", port) == -1, EADDRINUSE);
    FAILS(bind_to(d, "8.8.8.8", 0) == -1, EADDRNOTAVAIL);
    CHECK(!rdma_destroy_id(c));
    CHECK(!rdma_destroy_id(d));
    rdma_destroy_event_channel(e.events);
    assert_no_leaks();
}

static void holds_port(int sock) {
    struct end e = {0};
    tell(sock, end_listen(&e));
    hear(sock);
    end_free(&e);
}

TEST(a_port_of_another_process_is_in_use_until_it_ends) {
    struct other o = other_start(holds_port);
    struct end e = {0};
    uint16_t port = (uint16_t)hear(o.sock);
    struct rdma_cm_id *id = new_id(&e);
    FAILS(bind_to(id, "127.0.0.1", port) == -1, EADDRINUSE);
    FAILS(bind_to(id, "0.0.0.0", port) == -1, EADDRINUSE);
    tell(o.sock, 0);
    other_join(&o);
    CHECK(!bind_to(id, "127.0.0.1", port));
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(e.events);
}

TEST(a_tcp_listener_on_the_same_port_is_no_conflict) {
    struct end e = {0};
    struct sockaddr_in in = loopback(0);
    socklen_t len = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!bind(fd, (struct sockaddr *)&in, len) && !listen(fd, 1) && !getsockname(fd, (struct sockaddr *)&in, &len));
    struct rdma_cm_id *id = new_id(&e);
    CHECK(!bind_to(id, "127.0.0.1", in.sin_port));
    CHECK(!rdma_listen(id, 1));
    close(fd);
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(e.events);
}

TEST(wildcards_of_both_families_share_a_port_only_when_told_to) {
    struct end e = {0};
    struct rdma_cm_id *a = new_id(&e), *b = new_id(&e);
    CHECK(!bind_to(a, "0.0.0.0", 0));
    uint16_t port = rdma_get_src_port(a);
    FAILS(bind_to6(b, "::", port) == -1, EADDRINUSE);
    int on = 1;
    CHECK(!rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)));
    CHECK(!bind_to6(b, "::", port));
    CHECK(!rdma_destroy_id(a));
    CHECK(!rdma_destroy_id(b));
    rdma_destroy_event_channel(e.events);
}

TEST(reused_addresses_may_be_bound_twice_but_listened_on_once) {
    struct end e = {0};
    struct rdma_cm_id *a = new_id(&e), *b = new_id(&e);
    int on = 1;
    CHECK(!rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
    CHECK(!rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
    CHECK(!bind_to(a, "127.0.0.1", htons(28999)));
    CHECK(!bind_to(b, "127.0.0.1", htons(28999)));
    CHECK(!rdma_listen(a, 1));
    FAILS(rdma_listen(b, 1) == -1, EADDRINUSE);
    uint8_t tos = 8, ack = 14;
    CHECK(!rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
    CHECK(!rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack, sizeof(ack)));
    FAILS(rdma_set_option(a, 99, 0, &ack, sizeof(ack)) == -1, ENOSYS);
    CHECK(!rdma_destroy_id(a));
    CHECK(!rdma_destroy_id(b));
    rdma_destroy_event_channel(e.events);
}

/* The end of a completion channel is announced to all known processes. */
static void *broadcasts(void *accepted) {
    struct ibv_context *ctx = open_first();
    while (!atomic_load((atomic_bool *)accepted)) {
        struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
        CHECK(channel && !ibv_destroy_comp_channel(channel));
    }
    ibv_close_device(ctx);
    return NULL;
}

static void accepts_while_it_broadcasts(int sock) {
    struct end e = {0};
    atomic_bool accepted = false;
    pthread_t thread;
    setenv("SOFTRDMA_FAULTS", "greet:delay=100000", 1);
    uint16_t port = end_listen(&e);
    CHECK(!pthread_create(&thread, NULL, broadcasts, &accepted));
    tell(sock, port);
    end_accept(&e);
    atomic_store(&accepted, true);
    CHECK(!pthread_join(thread, NULL));
    hear(sock);
    end_free(&e);
}

TEST(messages_of_other_threads_do_not_overtake_the_answer_to_a_greeting) {
    struct other o = other_start(accepts_while_it_broadcasts);
    struct end e = {0};
    end_connect(&e, (uint16_t)hear(o.sock));
    tell(o.sock, 0);
    other_join(&o);
    end_free(&e);
}

TEST(nobody_listening_is_a_rejection_with_status_8) {
    struct end e = {0};
    end_resolve(&e, htons(28998));
    end_build(&e);
    struct rdma_conn_param p = {.responder_resources = 1};
    CHECK(!rdma_connect(e.id, &p));
    struct rdma_cm_event *event = next_event(&e);
    EQUAL(event->event, RDMA_CM_EVENT_REJECTED);
    EQUAL(event->status, 8);
    rdma_ack_cm_event(event);
    end_free(&e);
    assert_no_leaks();
}

TEST(an_address_of_another_machine_is_an_address_error) {
    struct end e = {0};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(0x08080808)};
    e.id = new_id(&e);
    CHECK(!rdma_resolve_addr(e.id, NULL, (struct sockaddr *)&to, 100));
    struct rdma_cm_event *event = next_event(&e);
    EQUAL(event->event, RDMA_CM_EVENT_ADDR_ERROR);
    CHECK(event->status < 0);
    rdma_ack_cm_event(event);
    end_free(&e);
}

TEST(a_source_address_can_be_chosen) {
    struct end e = {0};
    struct sockaddr_in to = loopback(htons(1)), from = {.sin_family = AF_INET};
    inet_pton(AF_INET, "127.0.0.9", &from.sin_addr);
    e.id = new_id(&e);
    CHECK(!rdma_resolve_addr(e.id, (struct sockaddr *)&from, (struct sockaddr *)&to, 100));
    expect_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
    struct sockaddr_in *src = (struct sockaddr_in *)rdma_get_local_addr(e.id);
    EQUAL(src->sin_addr.s_addr, from.sin_addr.s_addr);
    CHECK(src->sin_port);
    EQUAL(rdma_get_dst_port(e.id), htons(1));
    CHECK(e.id->verbs && e.id->port_num == 1);
    end_free(&e);
}

static struct rdma_conn_param greeting(const char *text, uint8_t resources, uint8_t depth) {
    return (struct rdma_conn_param){.private_data = text,
                                    .private_data_len = (uint8_t)(strlen(text) + 1),
                                    .responder_resources = resources,
                                    .initiator_depth = depth,
                                    .retry_count = 5,
                                    .rnr_retry_count = 3};
}

static void accepts_greeting(int sock) {
    struct end e = {0};
    tell(sock, end_listen(&e));
    struct rdma_cm_event *event = next_event(&e);
    EQUAL(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(event->listen_id == e.listener && event->id != e.listener);
    EQUAL(event->param.conn.private_data_len, 56); /* the whole field, as cards do */
    CHECK(!strcmp(event->param.conn.private_data, "hello"));
    EQUAL(event->param.conn.responder_resources, 2); /* their initiator depth */
    EQUAL(event->param.conn.initiator_depth, 6);
    EQUAL(event->param.conn.retry_count, 5);
    EQUAL(event->param.conn.rnr_retry_count, 3);
    e.id = event->id;
    rdma_ack_cm_event(event);
    tell(sock, rdma_get_dst_port(e.id));
    end_build(&e);
    struct rdma_conn_param p = greeting("well met", 2, 5);
    p.rnr_retry_count = 1;
    CHECK(!rdma_accept(e.id, &p));
    expect_event(&e, RDMA_CM_EVENT_ESTABLISHED);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(e.id->qp, &attr, 0, &init));
    EQUAL(attr.rnr_retry, 3); /* the client's word */
    EQUAL(attr.max_rd_atomic, 5);
    EQUAL(attr.max_dest_rd_atomic, 2);
    hear(sock);
    expect_event(&e, RDMA_CM_EVENT_DISCONNECTED);
    EQUAL(qp_state(e.id->qp), IBV_QPS_RTS); /* until the program says so */
    CHECK(!rdma_disconnect(e.id));
    EQUAL(qp_state(e.id->qp), IBV_QPS_ERR);
    expect_event(&e, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    end_free(&e);
    assert_no_leaks();
}

TEST(parameters_and_private_data_reach_the_other_side) {
    struct other o = other_start(accepts_greeting);
    struct end e = {0};
    end_resolve(&e, (uint16_t)hear(o.sock));
    end_build(&e);
    struct rdma_conn_param p = greeting("hello", 6, 2);
    CHECK(!rdma_connect(e.id, &p));
    EQUAL(hear(o.sock), rdma_get_src_port(e.id));
    struct rdma_cm_event *event = next_event(&e);
    EQUAL(event->event, RDMA_CM_EVENT_ESTABLISHED);
    EQUAL(event->param.conn.private_data_len, 196);
    CHECK(!strcmp(event->param.conn.private_data, "well met"));
    rdma_ack_cm_event(event);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(e.id->qp, &attr, 0, &init));
    EQUAL(attr.qp_state, IBV_QPS_RTS);
    EQUAL(attr.rnr_retry, 1); /* the server's word */
    EQUAL(attr.max_rd_atomic, 2);
    EQUAL(attr.max_dest_rd_atomic, 5);
    tell(o.sock, 0);
    end_hang_up(&e);
    expect_event(&e, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    end_free(&e);
    other_join(&o);
    assert_no_leaks();
}

TEST(the_request_carries_the_type_of_service_to_both_ends) {
    struct end s = {0}, e = {0};
    uint16_t port = end_listen(&s);
    end_resolve(&e, port);
    uint8_t tos[2] = {104, 1};
    FAILS(rdma_set_option(e.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, tos, 2) == -1, EINVAL);
    CHECK(!rdma_set_option(e.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, tos, 1));
    end_build(&e);
    struct rdma_conn_param p = {.responder_resources = 1, .initiator_depth = 1};
    CHECK(!rdma_connect(e.id, &p));
    s.id = expect_event(&s, RDMA_CM_EVENT_CONNECT_REQUEST);
    end_build(&s);
    tos[0] = 4;
    CHECK(!rdma_set_option(s.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, tos, 1)); /* too late for this path */
    CHECK(!rdma_accept(s.id, &p));
    expect_event(&e, RDMA_CM_EVENT_ESTABLISHED);
    expect_event(&s, RDMA_CM_EVENT_ESTABLISHED);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(e.id->qp, &attr, IBV_QP_AV, &init));
    EQUAL(attr.ah_attr.grh.traffic_class, 104);
    CHECK(!ibv_query_qp(s.id->qp, &attr, IBV_QP_AV, &init));
    EQUAL(attr.ah_attr.grh.traffic_class, 104);
    end_free(&e);
    end_free(&s);
    assert_no_leaks();
}

static void rejects(int sock) {
    struct end e = {0};
    tell(sock, end_listen(&e));
    struct rdma_cm_id *id = expect_event(&e, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(!rdma_reject(id, "no", 3));
    CHECK(!rdma_destroy_id(id));
    id = expect_event(&e, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(!rdma_destroy_id(id)); /* is a rejection as well */
    hear(sock);
    end_free(&e);
    assert_no_leaks();
}

TEST(a_rejection_carries_private_data_and_status_28) {
    struct other o = other_start(rejects);
    uint16_t port = (uint16_t)hear(o.sock);
    for (int i = 0; i < 2; i++) {
        struct end e = {0};
        end_resolve(&e, port);
        end_build(&e);
        struct rdma_conn_param p = {.responder_resources = 1};
        CHECK(!rdma_connect(e.id, &p));
        struct rdma_cm_event *event = next_event(&e);
        EQUAL(event->event, RDMA_CM_EVENT_REJECTED);
        EQUAL(event->status, 28);
        EQUAL(event->param.conn.private_data_len, 148);
        if (!i) CHECK(!strcmp(event->param.conn.private_data, "no"));
        rdma_ack_cm_event(event);
        end_free(&e);
    }
    tell(o.sock, 0);
    other_join(&o);
}

TEST(a_full_backlog_rejects) {
    struct end s = {0}, c[3] = {{0}};
    struct sockaddr_in any = loopback(0);
    s.listener = new_id(&s);
    CHECK(!rdma_bind_addr(s.listener, (struct sockaddr *)&any));
    CHECK(!rdma_listen(s.listener, 2));
    struct rdma_conn_param p = {.responder_resources = 1};
    for (int i = 0; i < 3; i++) {
        end_resolve(&c[i], rdma_get_src_port(s.listener));
        end_build(&c[i]);
        CHECK(!rdma_connect(c[i].id, &p));
    }
    /* Requests on different connections may overtake each other: any of them may be the one too many. */
    struct pollfd fds[3];
    for (int i = 0; i < 3; i++) fds[i] = (struct pollfd){c[i].events->fd, POLLIN, 0};
    CHECK(poll(fds, 3, (int)(PATIENCE_US / 1000)) > 0);
    int turned_down = fds[0].revents ? 0 : fds[1].revents ? 1 : 2;
    expect_event(&c[turned_down], RDMA_CM_EVENT_REJECTED);
    end_free(&s); /* turns the two down that it never looked at */
    for (int i = 0; i < 3; i++) {
        if (i != turned_down) expect_event(&c[i], RDMA_CM_EVENT_REJECTED);
        end_free(&c[i]);
    }
    assert_no_leaks();
}

TEST(too_much_private_data_and_too_many_resources_are_refused) {
    struct end s = {0}, e = {0};
    char data[200] = {0};
    end_resolve(&e, end_listen(&s));
    end_build(&e);
    struct rdma_conn_param p = {.private_data = data, .private_data_len = 57};
    FAILS(rdma_connect(e.id, &p) == -1, EINVAL);
    p = (struct rdma_conn_param){.responder_resources = 17};
    FAILS(rdma_connect(e.id, &p) == -1, EINVAL);
    p = (struct rdma_conn_param){.private_data = data, .private_data_len = 56};
    CHECK(!rdma_connect(e.id, &p));
    FAILS(rdma_connect(e.id, &p) == -1, EINVAL);
    s.id = expect_event(&s, RDMA_CM_EVENT_CONNECT_REQUEST);
    end_build(&s);
    p.private_data_len = 197;
    FAILS(rdma_accept(s.id, &p) == -1, EINVAL);
    p.private_data_len = 196;
    CHECK(!rdma_accept(s.id, &p));
    expect_event(&e, RDMA_CM_EVENT_ESTABLISHED);
    end_free(&e);
    end_free(&s);
}

TEST(both_sides_may_disconnect_at_once) {
    struct end s = {0}, e = {0};
    uint16_t port = end_listen(&s);
    end_resolve(&e, port);
    end_build(&e);
    struct rdma_conn_param p = {.responder_resources = 1};
    CHECK(!rdma_connect(e.id, &p));
    s.id = expect_event(&s, RDMA_CM_EVENT_CONNECT_REQUEST);
    end_build(&s);
    CHECK(!rdma_accept(s.id, &p));
    expect_event(&e, RDMA_CM_EVENT_ESTABLISHED);
    expect_event(&s, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(!rdma_disconnect(e.id));
    rdma_disconnect(s.id);
    expect_event(&e, RDMA_CM_EVENT_DISCONNECTED);
    expect_event(&s, RDMA_CM_EVENT_DISCONNECTED);
    end_free(&e);
    end_free(&s);
    assert_no_leaks();
}

TEST(destroying_a_connected_id_disconnects_the_peer) {
    struct end s = {0}, e = {0};
    end_resolve(&e, end_listen(&s));
    end_build(&e);
    struct rdma_conn_param p = {.responder_resources = 1};
    CHECK(!rdma_connect(e.id, &p));
    s.id = expect_event(&s, RDMA_CM_EVENT_CONNECT_REQUEST);
    end_build(&s);
    CHECK(!rdma_accept(s.id, &p));
    expect_event(&e, RDMA_CM_EVENT_ESTABLISHED);
    expect_event(&s, RDMA_CM_EVENT_ESTABLISHED);
    end_free(&e);
    expect_event(&s, RDMA_CM_EVENT_DISCONNECTED);
    end_free(&s);
    assert_no_leaks();
}

TEST(an_event_channel_can_be_nonblocking_and_edge_triggered) {
    struct end e = {0};
    struct rdma_cm_event *event;
    struct rdma_cm_id *id = new_id(&e);
    fcntl(e.events->fd, F_SETFL, fcntl(e.events->fd, F_GETFL) | O_NONBLOCK);
    FAILS(rdma_get_cm_event(e.events, &event) == -1, EAGAIN);
    struct sockaddr_in to = loopback(htons(1));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 100));
    expect_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
    FAILS(rdma_get_cm_event(e.events, &event) == -1, EAGAIN);
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(e.events);
}

TEST(an_id_can_move_to_another_channel_with_its_events) {
    struct end a = {0}, b = {0};
    struct rdma_cm_id *id = new_id(&a);
    CHECK((b.events = rdma_create_event_channel()));
    struct sockaddr_in to = loopback(htons(1));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 100));
    CHECK(!rdma_migrate_id(id, b.events));
    CHECK(expect_event(&b, RDMA_CM_EVENT_ADDR_RESOLVED) == id);
    struct pollfd fd = {a.events->fd, POLLIN, 0};
    EQUAL(poll(&fd, 1, 0), 0);
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(a.events);
    rdma_destroy_event_channel(b.events);
}

static void endpoint_server(int sock) {
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *res;
    struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 16}, .sq_sig_all = 1};
    struct rdma_cm_id *listener, *id;
    char port[16];
    snprintf(port, sizeof(port), "%d", 20000 + getpid() % 8000);
    CHECK(!rdma_getaddrinfo("127.0.0.1", port, &hints, &res));
    CHECK(!rdma_create_ep(&listener, res, NULL, &attr));
    rdma_freeaddrinfo(res);
    CHECK(!rdma_listen(listener, 0));
    tell(sock, (uint64_t)atoi(port));
    CHECK(!rdma_get_request(listener, &id));
    CHECK(id->qp && id->recv_cq && id->send_cq);
    struct ibv_recv_wr wr = {.wr_id = 3}, *bad;
    EQUAL(ibv_post_recv(id->qp, &wr, &bad), 0);
    CHECK(!rdma_accept(id, NULL));
    struct ibv_cq *cq;
    void *context;
    struct ibv_wc wc;
    EQUAL(ibv_req_notify_cq(id->recv_cq, 0), 0);
    if (!ibv_poll_cq(id->recv_cq, 1, &wc)) {
        CHECK(!ibv_get_cq_event(id->recv_cq_channel, &cq, &context));
        CHECK(cq == id->recv_cq && context == id);
        ibv_ack_cq_events(cq, 1);
        EQUAL(ibv_poll_cq(id->recv_cq, 1, &wc), 1);
    }
    EQUAL(wc.wr_id, 3);
    CHECK(!rdma_disconnect(id));
    rdma_destroy_ep(id);
    rdma_destroy_ep(listener);
    struct softrdma_counters c = counters();
    EQUAL(c.qps + c.cqs + c.comp_channels + c.cm_ids + c.cm_channels + c.cm_events_unacked, 0);
}

TEST(synchronous_end_points_connect) {
    struct other o = other_start(endpoint_server);
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *res;
    struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 16}, .sq_sig_all = 1};
    struct rdma_cm_id *id;
    char port[16];
    snprintf(port, sizeof(port), "%d", (int)hear(o.sock));
    CHECK(!rdma_getaddrinfo("127.0.0.1", port, &hints, &res));
    CHECK(!rdma_create_ep(&id, res, NULL, &attr));
    rdma_freeaddrinfo(res);
    CHECK(!rdma_connect(id, NULL));
    struct ibv_send_wr wr = {.wr_id = 9, .opcode = IBV_WR_SEND}, *bad;
    EQUAL(ibv_post_send(id->qp, &wr, &bad), 0);
    expect_wc(id->send_cq, 9, IBV_WC_SUCCESS);
    rdma_disconnect(id);
    rdma_destroy_ep(id);
    other_join(&o);
}

TEST(a_synchronous_connect_reports_a_refusal) {
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *res;
    struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 16}};
    struct rdma_cm_id *id;
    CHECK(!rdma_getaddrinfo("127.0.0.1", "28997", &hints, &res));
    CHECK(!rdma_create_ep(&id, res, NULL, &attr));
    rdma_freeaddrinfo(res);
    FAILS(rdma_connect(id, NULL) == -1, ECONNREFUSED);
    rdma_destroy_ep(id);
}

TEST(a_program_may_move_its_queue_pair_itself) {
    struct end s = {0}, e = {0};
    end_resolve(&e, end_listen(&s));
    struct ibv_pd *pd = ibv_alloc_pd(e.id->verbs);
    struct ibv_cq *cq = ibv_create_cq(e.id->verbs, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    struct rdma_conn_param p = {.responder_resources = 1, .initiator_depth = 1, .qp_num = qp->qp_num};
    CHECK(!rdma_connect(e.id, &p));
    s.id = expect_event(&s, RDMA_CM_EVENT_CONNECT_REQUEST);
    end_build(&s);
    EQUAL(end_recv(&s, 5, 0, 64), 0);
    struct rdma_conn_param ok = {.responder_resources = 1, .initiator_depth = 1};
    CHECK(!rdma_accept(s.id, &ok));
    expect_event(&e, RDMA_CM_EVENT_CONNECT_RESPONSE);
    for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
        struct ibv_qp_attr attr = {.qp_state = (enum ibv_qp_state)state};
        int mask;
        CHECK(!rdma_init_qp_attr(e.id, &attr, &mask));
        EQUAL(ibv_modify_qp(qp, &attr, mask), 0);
    }
    CHECK(!rdma_establish(e.id));
    expect_event(&s, RDMA_CM_EVENT_ESTABLISHED);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
    EQUAL(ibv_post_send(qp, &wr, &bad), 0);
    expect_wc(s.cq, 5, IBV_WC_SUCCESS);
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
    end_free(&e);
    end_free(&s);
    assert_no_leaks();
}

TEST(ipv6_connections_work_and_reach_a_dual_wildcard) {
    struct end s = {0}, e = {0};
    s.listener = new_id(&s);
    CHECK(!bind_to6(s.listener, "::", 0));
    CHECK(!rdma_listen(s.listener, 4));
    struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = rdma_get_src_port(s.listener), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in four = loopback(six.sin6_port);
    struct rdma_conn_param p = {.responder_resources = 1};
    for (int i = 0; i < 2; i++) {
        e = (struct end){0};
        e.id = new_id(&e);
        CHECK(!rdma_resolve_addr(e.id, NULL, i ? (struct sockaddr *)&four : (struct sockaddr *)&six, 100));
        expect_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
        CHECK(!rdma_resolve_route(e.id, 100));
        expect_event(&e, RDMA_CM_EVENT_ROUTE_RESOLVED);
        end_build(&e);
        CHECK(!rdma_connect(e.id, &p));
        s.id = expect_event(&s, RDMA_CM_EVENT_CONNECT_REQUEST);
        EQUAL(rdma_get_peer_addr(s.id)->sa_family, i ? AF_INET : AF_INET6);
        CHECK(!rdma_destroy_id(s.id));
        expect_event(&e, RDMA_CM_EVENT_REJECTED);
        end_free(&e);
    }
    s.id = NULL;
    end_free(&s);
}

static void many_server(int sock) {
    struct end e = {0};
    struct sockaddr_in any = loopback(0);
    CHECK((e.events = rdma_create_event_channel()));
    CHECK(!rdma_create_id(e.events, &e.listener, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(e.listener, (struct sockaddr *)&any));
    CHECK(!rdma_listen(e.listener, 1024));
    tell(sock, rdma_get_src_port(e.listener));
    struct ibv_pd *pd = NULL;
    struct ibv_cq *cq = NULL;
    int gone = 0, up = 0, total = (int)hear(sock);
    while (gone < total) {
        struct rdma_cm_event *event = next_event(&e);
        struct rdma_cm_id *id = event->id;
        enum rdma_cm_event_type type = event->event;
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            if (!pd) pd = ibv_alloc_pd(id->verbs);
            if (!cq) cq = ibv_create_cq(id->verbs, 4 * total, NULL, NULL, 0);
            struct ibv_qp_init_attr attr = {
                .send_cq = cq, .recv_cq = cq, .cap = {2, 2, 1, 1, 0}, .qp_type = IBV_QPT_RC};
            CHECK(!rdma_create_qp(id, pd, &attr));
            struct rdma_conn_param p = {.responder_resources = 1, .rnr_retry_count = 7};
            CHECK(!rdma_accept(id, &p));
        } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
            if (++up == total) tell(sock, 0);
        } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
            rdma_destroy_qp(id);
            CHECK(!rdma_destroy_id(id));
            gone++;
        }
    }
    CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
    end_free(&e);
    assert_no_leaks();
}

static int open_fds(void) {
    int n = 0;
    for (int fd = 0; fd < 4096; fd++) n += fcntl(fd, F_GETFD) != -1;
    return n;
}

TEST(a_thousand_connections_cost_no_descriptor_each) {
    enum { N = 1000 };
    static struct rdma_cm_id *ids[N];
    struct other o = other_start(many_server);
    uint16_t port = (uint16_t)hear(o.sock);
    tell(o.sock, N);
    struct end e = {0};
    struct ibv_pd *pd = NULL;
    struct ibv_cq *cq = NULL;
    struct sockaddr_in to = loopback(port);
    int before = open_fds();
    for (int i = 0; i < N; i++) {
        ids[i] = new_id(&e);
        CHECK(!rdma_resolve_addr(ids[i], NULL, (struct sockaddr *)&to, 100));
        expect_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
        CHECK(!rdma_resolve_route(ids[i], 100));
        expect_event(&e, RDMA_CM_EVENT_ROUTE_RESOLVED);
        if (!pd) pd = ibv_alloc_pd(ids[i]->verbs);
        if (!cq) cq = ibv_create_cq(ids[i]->verbs, 4 * N, NULL, NULL, 0);
        struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = {2, 2, 1, 1, 0}, .qp_type = IBV_QPT_RC};
        CHECK(!rdma_create_qp(ids[i], pd, &attr));
        struct rdma_conn_param p = {.responder_resources = 1, .rnr_retry_count = 7};
        CHECK(!rdma_connect(ids[i], &p));
        expect_event(&e, RDMA_CM_EVENT_ESTABLISHED);
    }
    hear(o.sock);
    CHECK(open_fds() - before < 40);
    for (int i = 0; i < N; i++) {
        rdma_destroy_qp(ids[i]);
        CHECK(!rdma_destroy_id(ids[i]));
    }
    CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
    rdma_destroy_event_channel(e.events);
    other_join(&o);
    assert_no_leaks();
}

TEST(the_listener_is_found_again_after_it_moved_to_another_process) {
    struct other o = other_start(holds_port);
    uint16_t port = (uint16_t)hear(o.sock);
    struct end e = {0}, s = {0};
    end_resolve(&e, port);
    end_build(&e);
    struct rdma_conn_param p = {.responder_resources = 1};
    CHECK(!rdma_connect(e.id, &p)); /* the other never answers; it ends, and takes its listener along */
    while (counters().control_messages < 2) usleep(200);
    tell(o.sock, 0);
    other_join(&o);
    expect_event(&e, RDMA_CM_EVENT_REJECTED);
    end_free(&e);
    s.listener = new_id(&s);
    CHECK(!bind_to(s.listener, "127.0.0.1", port));
    CHECK(!rdma_listen(s.listener, 4));
    e = (struct end){0};
    end_resolve(&e, port);
    end_build(&e);
    CHECK(!rdma_connect(e.id, &p));
    s.id = expect_event(&s, RDMA_CM_EVENT_CONNECT_REQUEST);
    end_free(&e);
    end_free(&s);
}
