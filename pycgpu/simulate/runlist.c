// SPDX-License-Identifier: MIT
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "runlist.h"
#include "recent/recent.h"
#include "core/sched/loop.h"
#include "core/sched/sched.h"
#include "switch_log.h"

#define NEVER UINT64_MAX

/*
 * Measured on an H200 (driver 580.159.04). A call to open takes 0.30 to 0.36 ms
 * and one to shut 0.40 to 0.80 ms, rarely up to 2 ms. When within the call the
 * gate moves, and how long the engine stands still, is not observable from
 * outside: fitted so that windows with either order of the calls lose what they
 * were measured to lose.
 */
enum {
	OPEN_NS = 310000,
	SHUT_NS = 420000,
	SLICE_NS = 300000,
	JITTER_NS = 25000,     /* mean; exponential */
	RARE_NS = 1500000,     /* on top, once in RARE calls */
	RARE = 500,
	OPEN_EFFECT = 45,      /* percent of the call */
	SHUT_EFFECT = 60,
	SHUT_EFFECT_LAST = 45, /* nobody else is there to run */
	STALL_NS = 60000,      /* from then on the engine stands still for so long */
	WAKE_NS = 8000,        /* mean lateness of a timer */
	FLUSH_NS = 13000,      /* asking for the log's records takes so long, */
	FLUSH_MORE_NS = 27000, /* and up to so much more */
	/*
	 * Reading GP_GET and GP_PUT of a channel by /proc/PID/mem; and what of a
	 * container's work is not fetched yet while its last submissions run.
	 */
	READ_NS = 7000,
	FETCH_NS = 1000000,
	CUDA_SLICE_NS = 2048000,
	FAIL_NS = 50000000     /* a driver that fails does so for that long */
};

struct group {
	uint32_t tenant;
	uint64_t left_ns;      /* work queued; NEVER: endless */
	uint64_t arrival_ns;   /* of the next work, while none is queued */
	uint32_t put;          /* submissions */
	uint32_t pieces;       /* of the present step, still to be submitted */
	bool begun;            /* the last one has been on the engine */
	bool unfetched;        /* submitted while its gate was shut, as it is still */
	bool reducing;         /* of a job: its own work of the step is done */
	uint64_t done_ns;      /* of its work, ever */
	uint64_t submit_ns;
	struct cgpu_demand_channel channel[MODEL_CHANNELS];
	struct cgpu_observe_channel observed[MODEL_CHANNELS];
};

struct call {
	bool active, effected, failed;
	struct cgpu_sched_action action;
	uint64_t start_ns, effect_ns, end_ns;
};

struct card {
	struct cgpu_sched sched;
	struct cgpu_recent recent;
	struct cgpu_sched_action queue[CGPU_SCHED_ACTIONS];
	uint32_t queued, taken;
	struct call call;
	uint64_t wake_ns;
	struct model_log log;
	uint64_t due_ns;       /* of the next look into it, or at the channels */
	uint64_t look_end_ns;  /* of the one under way; 0: none is */
	struct cgpu_demand demand;
	uint64_t look_mask;    /* whose channels are read */
	uint64_t look_begin_ns;
	struct cgpu_loop loop; /* of the engine; its actions are the queue */
	uint64_t act_ns;       /* of the prototype: GP_PUT moved */
	uint32_t act_put;
	bool is_shut;

	uint32_t groups, at;   /* runlist, and where it stands */
	uint32_t list[MODEL_TENANTS * MODEL_GROUPS];
	bool on, loaded;       /* a group is on the engine; the engine holds its context */
	bool rested;           /* nothing ran since the context was taken off */
	uint64_t early_ns;     /* what is loaded counts so much earlier, by the log */
	bool restart;          /* a gate moved and nothing ran: the runlist begins with its first */
	bool stopping;         /* its slice is over, and it has not stopped yet */
	bool inner;            /* it took over from one of the same tenant */
	uint64_t slice_left_ns, load_left_ns, stall_left_ns;

	uint32_t owner, phase; /* of the fixed controllers */
	uint64_t window_end_ns;
	struct cgpu_model_result *result;
};

struct tenant {
	bool open, gate, pending;
	uint64_t slice_ns;
	uint64_t event_ns;     /* next opening or closing */
	/* of a server */
	uint64_t request_ns;   /* when the present request came, or the next will */
	uint32_t arrived;      /* requests before that one */
	uint32_t step;         /* of the present request */
	bool serving;
	uint64_t last_ns;      /* when the step before was done, or the request begun */
};

struct model {
	const struct cgpu_model_config *config;
	const struct cgpu_model_tenant *tenants;
	uint32_t count;
	uint32_t *useful, *held, *backlog, *lost;
	struct group group[MODEL_TENANTS * MODEL_GROUPS];
	uint32_t groups;
	struct tenant tenant[MODEL_TENANTS];
	struct card card[MODEL_CARDS];
	uint64_t reduce_ns[MODEL_JOBS]; /* what is left of each job's reduction */
	uint64_t now_ns, random, lock_free_ns, bins;
	uint64_t open_ns, shut_ns;
	uint32_t changed;
	struct cgpu_model_sample *samples;
	uint32_t sampled, room;
};

static uint64_t draw(struct model *m)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return m->random;
}

static uint64_t exponential(struct model *m, uint64_t mean_ns)
{
	double u = ((double)(draw(m) >> 11) + 1) / 9007199254740993.0;

	return (uint64_t)(-log(u) * (double)mean_ns);
}

static uint64_t min_ns(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static bool ready(const struct model *m, uint32_t g)
{
	const struct group *group = &m->group[g];
	const struct tenant *t = &m->tenant[group->tenant];

	return group->left_ns && t->open && t->gate;
}

static void off(struct card *c)
{
	c->on = false;
}

static uint64_t load_ns(const struct card *c, const struct cgpu_model_tenant *t)
{
	if (c->rested && t->rest_ns)
		return t->rest_ns;
	return !c->loaded && t->gate_ns ? t->gate_ns : t->switch_ns;
}

static void put_on(struct model *m, struct card *c, uint32_t at)
{
	uint32_t g = c->list[at];
	bool same = c->loaded && c->at == at;

	if (!same)
		model_log_save(&c->log, m->now_ns);
	c->inner = c->loaded && m->group[c->list[c->at]].tenant == m->group[g].tenant;
	c->at = at;
	c->on = true;
	c->slice_left_ns = m->tenant[m->group[g].tenant].slice_ns;
	c->load_left_ns = same ? 0 : load_ns(c, &m->tenants[m->group[g].tenant]);
	c->early_ns = 0;
	if (c->rested)
		c->early_ns = min_ns(c->load_left_ns, m->tenants[m->group[g].tenant].early_ns);
	c->loaded = true;
	c->rested = false;
	c->stopping = false;
}

/* The runlist goes on to the next group that can run. */
static void dispatch(struct model *m, struct card *c)
{
	uint32_t k, at;

	if (c->on && ready(m, c->list[c->at]) && c->slice_left_ns)
		return;
	for (k = 1; k <= c->groups; k++) {
		at = c->restart ? k - 1 : (c->at + k) % c->groups;
		if (ready(m, c->list[at])) {
			put_on(m, c, at);
			c->restart = false;
			return;
		}
	}
	off(c);
}

/* Somebody but the one on the engine, and those of `mask`, could run. */
static bool others_ready(const struct model *m, const struct card *c, uint64_t mask)
{
	uint32_t k;

	for (k = 0; k < c->groups; k++)
		if (k != c->at && ready(m, c->list[k]) &&
		    !(mask >> m->group[c->list[k]].tenant & 1))
			return true;
	return false;
}

/* Its channels are taken off: a context that idles is saved, too. */
static void unload(struct model *m, struct card *c, uint32_t tenant)
{
	if (!c->loaded || m->group[c->list[c->at]].tenant != tenant)
		return;
	off(c);
	c->loaded = false;
	model_log_save(&c->log, m->now_ns);
}

/* ---- servers ---- */

static void sample(struct model *m, uint32_t tenant, uint32_t kind, uint64_t ns)
{
	if (m->sampled < m->room)
		m->samples[m->sampled++] =
			(struct cgpu_model_sample){ tenant, kind, m->now_ns, ns };
}

/* When the next request comes, of one that came at `from_ns`. */
static uint64_t next_request(struct model *m, uint32_t i, uint64_t from_ns)
{
	const struct cgpu_model_tenant *t = &m->tenants[i];

	if (!t->arrivals)
		return from_ns + (t->off_ns ? exponential(m, t->off_ns) : 0);
	return m->tenant[i].arrived < t->arrivals_count ? t->arrivals[m->tenant[i].arrived] : NEVER;
}

/* The host submits the next piece while those before it run, and goes on with another. */
static void submit_piece(struct model *m, uint32_t g)
{
	struct group *group = &m->group[g];
	const struct cgpu_model_tenant *t = &m->tenants[group->tenant];

	group->left_ns += t->step_ns / t->pieces;
	group->arrival_ns = --group->pieces ? m->now_ns + 1 + t->launch_ns : NEVER;
}

static void submit(struct model *m, uint32_t g)
{
	struct group *group = &m->group[g];
	struct tenant *state = &m->tenant[group->tenant];
	const struct cgpu_model_tenant *t = &m->tenants[group->tenant];

	if (!state->serving) {
		state->serving = true;
		state->step = 0;
		state->last_ns = m->now_ns;
	}
	group->submit_ns = m->now_ns;
	group->pieces = t->pieces;
	submit_piece(m, g);
}

static void step_done(struct model *m, uint32_t g)
{
	struct group *group = &m->group[g];
	uint32_t i = group->tenant;
	struct tenant *state = &m->tenant[i];
	const struct cgpu_model_tenant *t = &m->tenants[i];

	uint64_t host_ns = t->host_ns + exponential(m, t->host_ns / 3);

	sample(m, i, MODEL_STEP, m->now_ns - state->last_ns);
	state->last_ns = m->now_ns;
	if (++state->step < t->steps) {
		group->arrival_ns = m->now_ns + host_ns;
		return;
	}
	sample(m, i, MODEL_REQUEST, m->now_ns - state->request_ns);
	state->serving = false;
	state->arrived++;
	if (!t->off_ns && !t->arrivals)
		state->request_ns = m->now_ns;
	else
		state->request_ns = next_request(m, i, state->request_ns);
	group->arrival_ns = state->request_ns > m->now_ns + host_ns ? state->request_ns :
								      m->now_ns + host_ns;
}

/* What the channel of a group that moves says. */
static void userd(const struct model *m, uint32_t g, uint32_t *get, uint32_t *put)
{
	const struct group *group = &m->group[g];
	const struct cgpu_model_tenant *t = &m->tenants[group->tenant];
	uint64_t piece_ns = t->kind == MODEL_SERVER ? t->step_ns / t->pieces : 0;
	uint64_t fetch_ns = piece_ns > FETCH_NS ? piece_ns : FETCH_NS;

	*put = group->put;
	if (t->fetched_ns && t->kind != MODEL_SERVER)
		*put += (uint32_t)(group->done_ns / t->fetched_ns);
	else if (group->left_ns == NEVER || t->kind == MODEL_SPINNER)
		*put += (uint32_t)(m->now_ns / 500000);
	*get = *put;
	if (t->kind == MODEL_FROZEN ||
	    (group->left_ns && group->unfetched) ||
	    (group->left_ns && !t->fetched_ns && (!group->begun || group->left_ns > fetch_ns)))
		--*get;
	*get %= 1024;
	*put %= 1024;
}

/* ---- controllers ---- */

static void set_gate(struct model *m, struct card *c, uint64_t mask, bool open)
{
	uint32_t i, g;

	for (i = 0; i < m->count; i++) {
		if (&m->card[m->tenants[i].card] != c || !(mask >> i & 1))
			continue;
		m->tenant[i].gate = open;
		if (!open)
			unload(m, c, i);
		for (g = 0; open && g < m->groups; g++)
			if (m->group[g].tenant == i)
				m->group[g].unfetched = false;
	}
	c->restart |= !c->on;
	if (!open)
		c->stall_left_ns += STALL_NS;
}

static void start_call(struct model *m, struct card *c)
{
	struct call *call = &c->call;
	uint64_t ns, stubborn = 0;
	uint32_t i, percent;

	call->action = c->queue[c->taken];
	call->active = true;
	call->effected = call->failed = false;
	call->start_ns = m->now_ns > m->lock_free_ns ? m->now_ns : m->lock_free_ns;
	ns = call->action.kind == CGPU_SCHED_OPEN ? m->open_ns :
	     call->action.kind == CGPU_SCHED_SHUT ? m->shut_ns : SLICE_NS;
	ns += exponential(m, JITTER_NS);
	if (draw(m) % RARE == 0)
		ns += draw(m) % RARE_NS;
	if (call->action.kind == CGPU_SCHED_SHUT && c->on) {
		i = m->group[c->list[c->at]].tenant;
		if (call->action.mask >> i & 1)
			stubborn = m->tenants[i].stubborn_ns;
	}
	if (stubborn)
		ns = stubborn + draw(m) % stubborn;
	percent = call->action.kind == CGPU_SCHED_OPEN ? OPEN_EFFECT :
		  others_ready(m, c, call->action.mask) ? SHUT_EFFECT : SHUT_EFFECT_LAST;
	call->effect_ns = call->start_ns + (stubborn ? ns : ns * percent / 100);
	call->end_ns = call->start_ns + ns;
	/* the driver's lock of all cards is taken for the call, not for the wait */
	m->lock_free_ns = call->start_ns + min_ns(ns, 2 * m->shut_ns);
	c->result->call_ns += m->lock_free_ns - call->start_ns;
	if (call->action.kind != CGPU_SCHED_SLICE) {
		c->result->gate_calls++;
	} else {
		c->result->slice_calls++;
		c->result->late_slice_calls += m->now_ns > 1000000000;
	}
}

static void effect(struct model *m, struct card *c)
{
	const struct cgpu_sched_action *a = &c->call.action;
	uint32_t i;

	c->call.effected = true;
	c->call.failed = m->config->fail_ns && m->now_ns >= m->config->fail_ns &&
			 m->now_ns < m->config->fail_ns + FAIL_NS;
	if (c->call.failed)
		return;
	if (a->kind != CGPU_SCHED_SLICE) {
		set_gate(m, c, a->mask, a->kind == CGPU_SCHED_OPEN);
		return;
	}
	for (i = 0; i < m->count; i++)
		if (a->mask >> i & 1)
			m->tenant[i].slice_ns = (uint64_t)a->slice_us * 1000;
}

static void push(struct card *c, uint32_t kind, uint64_t mask)
{
	c->queue[c->queued++] = (struct cgpu_sched_action){ kind, 0, mask };
}

/* All but servers are shut while one has a request, or seems to. */
static void serve(struct model *m, struct card *c)
{
	const struct cgpu_model_tenant *t = m->tenants;
	uint32_t i, g, get, put, sum = 0;
	uint64_t others = 0;
	bool wanted = false;

	for (i = 0; i < m->count; i++) {
		others |= t[i].kind == MODEL_SERVER ? 0 : 1ULL << i;
		wanted |= m->tenant[i].serving;
	}
	if (m->config->controller == MODEL_SUBMISSIONS) {
		for (g = 0; g < m->groups; g++) {
			if (t[m->group[g].tenant].kind != MODEL_SERVER)
				continue;
			userd(m, g, &get, &put);
			sum += put;
		}
		if (sum != c->act_put)
			c->act_ns = m->now_ns;
		c->act_put = sum;
		wanted = c->act_ns && m->now_ns - c->act_ns < t[0].pause_ns;
	}
	if (wanted != c->is_shut)
		push(c, wanted ? CGPU_SCHED_SHUT : CGPU_SCHED_OPEN, others);
	c->is_shut = wanted;
	c->wake_ns = m->now_ns + t[0].window_ns + 50000 + exponential(m, WAKE_NS);
}

/* Fixed windows, with no accounts: what prototypes on the real card did. */
static void fixed(struct model *m, struct card *c)
{
	const struct cgpu_model_config *config = m->config;
	uint32_t next;

	c->queued = c->taken = 0;
	if (config->controller == MODEL_REQUESTS || config->controller == MODEL_SUBMISSIONS) {
		serve(m, c);
		return;
	}
	if (config->controller == MODEL_SLEEPER) {
		push(c, c->phase ? CGPU_SCHED_SHUT : CGPU_SCHED_OPEN, 1);
		c->wake_ns = NEVER; /* set when the call has returned */
		return;
	}
	next = (c->owner + 1) % m->count;
	push(c, config->controller == MODEL_WINDOWS ? CGPU_SCHED_OPEN : CGPU_SCHED_SHUT,
	     1ULL << (config->controller == MODEL_WINDOWS ? next : c->owner));
	push(c, config->controller == MODEL_WINDOWS ? CGPU_SCHED_SHUT : CGPU_SCHED_OPEN,
	     1ULL << (config->controller == MODEL_WINDOWS ? c->owner : next));
	c->owner = next;
	c->window_end_ns += m->tenants[next].window_ns;
	c->wake_ns = c->window_end_ns - 500000;
}

/* Reads what the channels of `mask` say. Return: what that took. */
static bool is_recent(const struct model *m)
{
	return m->config->controller == MODEL_RECENT;
}

static bool wants(struct model *m, struct card *c, uint32_t i, uint32_t g, uint32_t k)
{
	if (is_recent(m))
		return cgpu_observe_wants(&c->recent.observe, i, &m->group[g].observed[k]);
	return cgpu_demand_wants(&c->demand, i, &m->group[g].channel[k]);
}

/* Return: true: the tenant's other channels need not be read. */
static bool sampled(struct model *m, struct card *c, uint32_t i, uint32_t g, uint32_t k,
		    uint32_t get, uint32_t put)
{
	if (!is_recent(m))
		return cgpu_demand_sample(&c->demand, i, &m->group[g].channel[k], get, put);
	cgpu_observe_sample(&c->recent.observe, i, &m->group[g].observed[k], get, put);
	return false;
}

static uint64_t read_channels(struct model *m, struct card *c, uint64_t mask)
{
	uint32_t g, k, get, put, reads = 0;
	uint64_t done = 0;

	for (g = 0; g < m->groups; g++) {
		uint32_t i = m->group[g].tenant;

		for (k = 0; k < m->tenants[i].channels && (mask & ~done) >> i & 1; k++) {
			if (&m->card[m->tenants[i].card] != c || !wants(m, c, i, g, k))
				continue;
			/* all move while its contexts are made */
			get = put = (uint32_t)(min_ns(m->now_ns, m->tenants[i].made_ns) / 2000000);
			/* CUDA uses neither the first nor the last of its channels */
			if (k == m->tenants[i].channels / 2)
				userd(m, g, &get, &put);
			reads++;
			if (sampled(m, c, i, g, k, get, put))
				done |= 1ULL << i;
		}
	}
	c->result->reads += reads;
	c->result->read_ns += reads * READ_NS;
	return reads * READ_NS;
}

/* As the governors do whenever a tick asks for nothing. */
static void follow(struct model *m, struct card *c, enum cgpu_loop_step step, uint64_t mask,
		   uint64_t due_ns)
{
	c->look_mask = 0;
	c->due_ns = due_ns;
	if (step == CGPU_LOOP_LOOK) {
		c->look_mask = mask;
		c->look_begin_ns = m->now_ns;
		c->look_end_ns = m->now_ns + read_channels(m, c, mask) + 1000;
	} else if (step == CGPU_LOOP_READ) {
		c->look_end_ns = m->now_ns + FLUSH_NS + draw(m) % FLUSH_MORE_NS;
	} else {
		c->due_ns += c->due_ns != NEVER ? exponential(m, WAKE_NS) : 0;
	}
}

static void follow_recent(struct model *m, struct card *c)
{
	uint64_t mask, due_ns;

	if (!c->log.ring) {
		c->due_ns = NEVER;
		return;
	}
	due_ns = cgpu_recent_due(&c->recent, m->now_ns, &mask);
	follow(m, c, m->now_ns < due_ns ? CGPU_LOOP_WAIT : mask ? CGPU_LOOP_LOOK : CGPU_LOOP_READ,
	       mask, due_ns);
}

static void read_log(struct model *m, struct card *c)
{
	struct cgpu_switch_log_use room[CGPU_SWITCH_LOG_USES];
	struct cgpu_switch_log_batch batch = { .use = room };
	const struct cgpu_switch_log_use *use;

	model_log_flush(&c->log);
	while ((use = cgpu_switch_log_next(&c->log.log, c->log.header, c->log.ring, m->now_ns,
					   &batch))) {
		uint32_t tenant = m->group[use->pid - 1].tenant;

		if (is_recent(m)) {
			cgpu_switch_log_tell(&c->log.log, use, tenant);
			cgpu_recent_used(&c->recent, tenant, use->ns, use->switched_ns, use->loads);
		} else {
			cgpu_switch_log_used(&c->log.log, &c->sched, tenant, use);
		}
	}
}

static void tick(struct model *m, struct card *c)
{
	enum cgpu_loop_step step = CGPU_LOOP_WAIT;

	if (c->call.active || c->look_end_ns)
		return;
	if (is_recent(m)) {
		c->queued = cgpu_recent_tick(&c->recent, m->now_ns, c->queue, &c->wake_ns);
		c->taken = 0;
		c->result->ticks++;
		if (m->now_ns > 1000000 && c->recent.period_ns > c->result->period_ns)
			c->result->period_ns = c->recent.period_ns;
		if (c->wake_ns != NEVER)
			c->wake_ns += exponential(m, WAKE_NS);
	} else if (m->config->controller == MODEL_ENGINE) {
		step = cgpu_loop_next(&c->loop, m->now_ns);
		c->queued = c->loop.count;
		c->taken = 0;
		c->wake_ns = c->loop.wake_ns;
		c->result->ticks++;
		/* while all tenants are still coming, it is not yet the scenario's */
		if (m->now_ns > 1000000 && c->sched.plan.period_ns > c->result->period_ns)
			c->result->period_ns = c->sched.plan.period_ns;
		if (c->wake_ns != NEVER)
			c->wake_ns += exponential(m, WAKE_NS);
	} else {
		fixed(m, c);
	}
	if (c->queued)
		start_call(m, c);
	else if (m->config->controller == MODEL_ENGINE)
		follow(m, c, step, c->loop.mask, c->loop.due_ns);
	else if (is_recent(m))
		follow_recent(m, c);
}

static void finish_look(struct model *m, struct card *c)
{
	c->look_end_ns = 0;
	if (c->look_mask) {
		c->result->demand_looks++;
		if (is_recent(m))
			cgpu_recent_looked(&c->recent, c->look_mask, m->now_ns);
		else
			cgpu_loop_done(&c->loop, CGPU_LOOP_LOOK, c->look_begin_ns, m->now_ns, 0);
	} else {
		c->result->looks++;
		read_log(m, c);
		if (is_recent(m))
			cgpu_recent_logged(&c->recent, m->now_ns);
		else
			cgpu_loop_done(&c->loop, CGPU_LOOP_READ, m->now_ns, m->now_ns, 0);
	}
	tick(m, c);
}

static void finish_call(struct model *m, struct card *c)
{
	const struct cgpu_model_config *config = m->config;
	int status = c->call.failed ? -EIO : 0;

	c->call.active = false;
	if (config->controller == MODEL_ENGINE)
		cgpu_loop_done(&c->loop, CGPU_LOOP_MOVE, c->call.start_ns, m->now_ns, status);
	else if (is_recent(m))
		cgpu_recent_done(&c->recent, &c->call.action, c->call.start_ns, m->now_ns, status);
	c->taken++;
	if (c->taken < c->queued) {
		start_call(m, c);
		return;
	}
	if (config->controller == MODEL_SLEEPER) {
		c->wake_ns = m->now_ns + 50000 +
			(c->phase ? m->tenants[0].pause_ns : m->tenants[0].window_ns);
		c->phase = !c->phase;
		return;
	}
	if (config->controller == MODEL_ENGINE || is_recent(m))
		tick(m, c);
}

/* ---- tenants ---- */

static void refill(struct model *m, uint32_t g)
{
	struct group *group = &m->group[g];
	const struct cgpu_model_tenant *t = &m->tenants[group->tenant];
	const struct card *c = &m->card[t->card];

	group->put++;
	group->unfetched |= !m->tenant[group->tenant].gate;
	/* what is submitted while it runs is fetched at once */
	group->begun = group->left_ns && c->on && c->list[c->at] == g;
	if (t->kind == MODEL_SERVER && group->pieces) {
		submit_piece(m, g);
		return;
	}
	if (t->kind == MODEL_SERVER) {
		submit(m, g);
		return;
	}
	if (t->kind == MODEL_BURSTY)
		group->left_ns = 1 + exponential(m, t->on_ns);
	else
		group->left_ns = NEVER;
	group->arrival_ns = NEVER;
}

/* Return: true: the group stays on the engine. */
static bool exhausted(struct model *m, uint32_t g)
{
	struct group *group = &m->group[g];
	const struct cgpu_model_tenant *t = &m->tenants[group->tenant];

	if (t->kind == MODEL_SERVER && !group->pieces && t->job && !group->reducing) {
		group->reducing = true;
		group->left_ns = NEVER;
		m->reduce_ns[t->job] = t->reduce_ns;
		return true;
	}
	group->reducing = false;
	if (t->kind == MODEL_SERVER && !group->pieces)
		step_done(m, g);
	else if (t->kind == MODEL_BURSTY && group->arrival_ns == NEVER)
		group->arrival_ns = m->now_ns + 1 + exponential(m, t->off_ns);
	return false;
}

static bool is_on_engine(const struct model *m, uint32_t g)
{
	const struct card *c = &m->card[m->tenants[m->group[g].tenant].card];

	return c->on && !c->load_left_ns && !c->stall_left_ns && c->list[c->at] == g;
}

/* All of the job are on their engines and have nothing else to do. */
static bool reduces(const struct model *m, uint32_t job)
{
	bool any = false;
	uint32_t g;

	for (g = 0; g < m->groups; g++) {
		if (m->tenants[m->group[g].tenant].job != job)
			continue;
		if (!m->group[g].reducing || !is_on_engine(m, g))
			return false;
		any = true;
	}
	return any;
}

static void reduced(struct model *m, uint32_t job)
{
	uint32_t g;

	for (g = 0; g < m->groups; g++)
		if (m->tenants[m->group[g].tenant].job == job)
			m->group[g].left_ns = 0;
}

static void hold(struct model *m, uint32_t i, bool open)
{
	struct card *c = &m->card[m->tenants[i].card];
	struct tenant *t = &m->tenant[i];

	t->open = open;
	t->gate = true;
	if (open && m->config->controller == MODEL_ENGINE)
		t->gate = cgpu_sched_may_run(&c->sched, i);
	else if (open && is_recent(m))
		t->gate = cgpu_recent_may_run(&c->recent, i);
	t->slice_ns = CUDA_SLICE_NS;
	if (!open)
		unload(m, c, i);
	if (m->config->controller == MODEL_ENGINE) {
		cgpu_sched_open(&c->sched, i, open, open ? m->tenants[i].groups : 0, m->now_ns);
		cgpu_sched_gang(&c->sched, i, open ? m->tenants[i].job : 0, m->now_ns);
		/* as a door that shuts what begins while it may not run */
		if (open && !t->gate)
			cgpu_sched_held(&c->sched, i, m->now_ns);
		tick(m, c);
	} else if (is_recent(m)) {
		cgpu_recent_open(&c->recent, i, open, open ? m->tenants[i].groups : 0, m->now_ns);
		if (open && !t->gate)
			cgpu_recent_held(&c->recent, i);
		tick(m, c);
	} else if (m->config->controller == MODEL_SLICES) {
		t->slice_ns = (uint64_t)m->tenants[i].slice_us * 1000;
	}
}

static void enter(struct model *m, uint32_t i, uint32_t weight, uint32_t quota)
{
	const struct cgpu_model_tenant *t = &m->tenants[i];
	struct cgpu_policy_member member = { weight, quota, t->quota_min, t->priority,
					     false, false };

	(void)cgpu_sched_set(&m->card[t->card].sched, i, &member, m->now_ns);
	(void)cgpu_recent_set(&m->card[t->card].recent, i, &member, m->now_ns);
}

static void tenant_event(struct model *m, uint32_t i)
{
	const struct cgpu_model_tenant *t = &m->tenants[i];
	struct tenant *state = &m->tenant[i];

	if (!state->open) {
		hold(m, i, true);
		state->event_ns = t->again_ns ? m->now_ns + t->close_ns : t->close_ns;
	} else {
		hold(m, i, false);
		state->event_ns = t->kind == MODEL_CLOSER ? m->now_ns + t->off_ns :
				  t->again_ns		  ? m->now_ns + t->again_ns :
							    NEVER;
	}
}

static bool has_work(const struct model *m, uint32_t i)
{
	uint32_t g;

	if (!m->tenant[i].open)
		return false;
	for (g = 0; g < m->groups; g++)
		if (m->group[g].tenant == i && m->group[g].left_ns)
			return true;
	return false;
}

static void change(struct model *m)
{
	const struct cgpu_model_change *ch = &m->config->change[m->changed++];
	struct card *c = &m->card[m->tenants[ch->tenant].card];

	enter(m, ch->tenant, ch->weight, ch->quota);
	(void)cgpu_sched_card(&c->sched, ch->policy, m->config->max_inst,
			      m->config->timeslice_us, m->now_ns);
	(void)cgpu_recent_card(&c->recent, ch->policy, m->config->max_inst,
			       m->config->timeslice_us, m->now_ns);
	tick(m, c);
}

/* ---- time ---- */

static uint64_t card_event(const struct model *m, const struct card *c)
{
	uint64_t next = NEVER;
	uint32_t g;

	if (c->call.active)
		next = c->call.effected ? c->call.end_ns : c->call.effect_ns;
	else
		next = c->look_end_ns ? c->look_end_ns : min_ns(c->wake_ns, c->due_ns);
	if (c->stall_left_ns)
		return min_ns(next, m->now_ns + c->stall_left_ns);
	if (c->on) {
		if (c->load_left_ns)
			return min_ns(next, m->now_ns + c->load_left_ns);
		g = c->list[c->at];
		next = min_ns(next, m->now_ns + min_ns(c->slice_left_ns, m->group[g].left_ns));
	}
	return next;
}

static void add(const struct model *m, uint32_t *row, uint64_t ns)
{
	uint64_t bin = m->now_ns / m->config->bin_ns;

	if (bin < m->bins)
		row[bin] += (uint32_t)ns;
}

static void advance(struct model *m, struct card *c, uint64_t ns)
{
	uint32_t n = (uint32_t)(c - m->card), g, i;
	struct group *group;

	if (c->stall_left_ns) {
		c->stall_left_ns -= min_ns(ns, c->stall_left_ns);
		c->result->lost_ns += ns;
		add(m, m->lost + n * m->bins, ns);
	} else if (c->on && c->load_left_ns) {
		c->load_left_ns -= ns;
		c->result->lost_ns += ns;
		if (c->inner)
			add(m, m->held + m->group[c->list[c->at]].tenant * m->bins, ns);
		else
			add(m, m->lost + n * m->bins, ns);
	} else if (c->on) {
		g = c->list[c->at];
		group = &m->group[g];
		c->slice_left_ns -= ns;
		group->done_ns += ns;
		if (group->left_ns != NEVER)
			group->left_ns -= ns;
		add(m, m->useful + group->tenant * m->bins, ns);
		add(m, m->held + group->tenant * m->bins, ns);
		if (!c->log.ring && !is_recent(m))
			cgpu_sched_used(&c->sched, group->tenant, ns);
	} else {
		c->rested |= ns && !c->loaded;
		c->result->idle_ns += ns;
		for (i = 0; i < m->count; i++) {
			if (m->tenants[i].uncapped && m->tenants[i].card == n &&
			    m->tenant[i].pending) {
				c->result->idle_waiting_ns += ns;
				break;
			}
		}
	}
}

static void after(struct model *m, struct card *c)
{
	uint64_t stubborn;
	uint32_t g;

	if (c->on && !c->load_left_ns) {
		g = c->list[c->at];
		/* a process a group, with a number that is nobody else's */
		model_log_load(&c->log, g + 1, m->now_ns - c->early_ns);
		if (!m->group[g].begun) {
			m->group[g].begun = true;
			if (m->tenants[m->group[g].tenant].kind == MODEL_SERVER &&
			    m->tenant[m->group[g].tenant].step == 0 &&
			    m->group[g].pieces + 1 == m->tenants[m->group[g].tenant].pieces)
				sample(m, m->group[g].tenant, MODEL_WAIT,
				       m->now_ns - m->group[g].submit_ns);
		}
		if (!m->group[g].left_ns && exhausted(m, g)) {
			/* its next kernel follows */
		} else if (!m->group[g].left_ns) {
			c->on = false;
		} else if (!c->slice_left_ns) {
			stubborn = m->tenants[m->group[g].tenant].stubborn_ns;
			if (stubborn && !c->stopping && others_ready(m, c, 0)) {
				c->stopping = true;
				c->slice_left_ns = stubborn + draw(m) % stubborn;
			} else {
				c->on = false;
			}
		}
	}
	if (c->call.active && !c->call.effected && m->now_ns >= c->call.effect_ns)
		effect(m, c);
	if (c->call.active && c->call.effected && m->now_ns >= c->call.end_ns)
		finish_call(m, c);
	if (c->look_end_ns && m->now_ns >= c->look_end_ns)
		finish_look(m, c);
	if (!c->call.active && m->now_ns >= min_ns(c->wake_ns, c->due_ns))
		tick(m, c);
	if (!c->on)
		dispatch(m, c);
}

/* A closer leaves just before its window would be ended. */
static void watch_closers(struct model *m)
{
	uint32_t i;

	for (i = 0; i < m->count; i++) {
		const struct card *c = &m->card[m->tenants[i].card];
		struct tenant *t = &m->tenant[i];

		if (m->tenants[i].kind != MODEL_CLOSER || !t->open)
			continue;
		if (c->sched.cur.begun && c->sched.cur.owner == i && !c->call.active &&
		    c->wake_ns != NEVER)
			t->event_ns = c->wake_ns > 50000 ? c->wake_ns - 50000 : 0;
		if (t->event_ns < m->now_ns)
			t->event_ns = m->now_ns;
	}
}

static void loop(struct model *m)
{
	const struct cgpu_model_config *config = m->config;
	uint64_t next, ns;
	uint32_t i, g;

	while (m->now_ns < config->duration_ns) {
		bool reducing[MODEL_JOBS] = { false };

		for (i = 0; i < m->count; i++)
			m->tenant[i].pending = has_work(m, i);
		next = (m->now_ns / config->bin_ns + 1) * config->bin_ns;
		if (m->changed < config->changes)
			next = min_ns(next, config->change[m->changed].at_ns);
		for (i = 0; i < config->cards; i++)
			next = min_ns(next, card_event(m, &m->card[i]));
		for (g = 0; g < m->groups; g++)
			if (!m->group[g].left_ns || m->group[g].pieces)
				next = min_ns(next, m->group[g].arrival_ns);
		for (i = 0; i < m->count; i++)
			next = min_ns(next, m->tenant[i].event_ns);
		for (i = 1; i < MODEL_JOBS; i++) {
			reducing[i] = reduces(m, i);
			if (reducing[i])
				next = min_ns(next, m->now_ns + m->reduce_ns[i]);
		}
		if (next < m->now_ns)
			next = m->now_ns;
		ns = next - m->now_ns;
		for (i = 0; i < config->cards; i++)
			advance(m, &m->card[i], ns);
		for (i = 0; i < m->count; i++)
			if (m->tenant[i].pending)
				add(m, m->backlog + i * m->bins, ns);
		m->now_ns = next;
		for (i = 1; i < MODEL_JOBS; i++) {
			if (!reducing[i])
				continue;
			m->reduce_ns[i] -= ns;
			if (!m->reduce_ns[i])
				reduced(m, i);
		}
		for (g = 0; g < m->groups; g++)
			if ((!m->group[g].left_ns || m->group[g].pieces) &&
			    m->group[g].arrival_ns <= m->now_ns)
				refill(m, g);
		for (i = 0; i < m->count; i++) {
			const struct cgpu_model_tenant *t = &m->tenants[i];

			if (m->tenant[i].event_ns <= m->now_ns)
				tenant_event(m, i);
			if (t->kind == MODEL_WAKING && m->now_ns >= t->on_ns + t->off_ns)
				for (g = 0; g < m->groups; g++)
					if (m->group[g].tenant == i) {
						m->group[g].left_ns = 0;
						m->group[g].arrival_ns = NEVER - 1;
					}
		}
		if (m->changed < config->changes &&
		    m->now_ns >= config->change[m->changed].at_ns)
			change(m);
		for (i = 0; i < config->cards; i++)
			after(m, &m->card[i]);
		watch_closers(m);
	}
}

/* Return: 0, -ENOMEM. */
static int setup(struct model *m)
{
	const struct cgpu_model_config *config = m->config;
	uint32_t i, k;

	for (i = 0; i < config->cards; i++) {
		struct card *c = &m->card[i];

		cgpu_sched_init(&c->sched, 0);
		cgpu_recent_init(&c->recent, 0);
		c->recent.phase_ns = i * 1300000;
		cgpu_demand_init(&c->demand);
		c->sched.config.phase_ns = i * 1300000;
		c->due_ns = NEVER;
		if ((config->controller == MODEL_ENGINE || is_recent(m)) &&
		    config->reports == MODEL_LOG && model_log_open(&c->log, config->card_clock_ppm))
			return -ENOMEM;
		c->loop = (struct cgpu_loop){
			.sched = &c->sched,
			.log = c->log.ring ? &c->log.log : NULL,
			.demand = c->log.ring ? &c->demand : NULL,
			.action = c->queue,
		};
		if (config->loss_ppm)
			c->sched.config.loss_ppm = config->loss_ppm;
		(void)cgpu_sched_card(&c->sched, config->policy, config->max_inst,
				      config->timeslice_us, 0);
		(void)cgpu_recent_card(&c->recent, config->policy, config->max_inst,
				       config->timeslice_us, 0);
		c->wake_ns = NEVER;
	}
	for (i = 0; i < m->count; i++) {
		const struct cgpu_model_tenant *t = &m->tenants[i];
		struct card *c = &m->card[t->card];

		for (k = 0; k < t->groups; k++) {
			struct group *g = &m->group[m->groups];

			g->tenant = i;
			g->arrival_ns = NEVER;
			if (t->kind == MODEL_BACKLOGGED || t->kind == MODEL_CLOSER)
				g->left_ns = NEVER;
			else if (t->kind == MODEL_BURSTY)
				g->arrival_ns = exponential(m, t->off_ns);
			else if (t->kind == MODEL_SERVER)
				g->arrival_ns = m->tenant[i].request_ns = next_request(m, i, 0);
			else
				g->arrival_ns = t->kind == MODEL_WAKING ? t->on_ns : NEVER - 1;
			c->list[c->groups++] = m->groups++;
		}
		enter(m, i, t->weight, t->quota);
		m->tenant[i].event_ns = t->open_ns;
		m->tenant[i].gate = true;
	}
	if (config->controller == MODEL_WINDOWS || config->controller == MODEL_WINDOWS_SHUT) {
		for (i = 1; i < m->count; i++)
			m->tenant[i].gate = false;
		m->card[0].window_end_ns = m->tenants[0].window_ns;
		m->card[0].wake_ns = m->card[0].window_end_ns - 500000;
	} else if (config->controller == MODEL_SLEEPER || config->controller == MODEL_REQUESTS ||
		   config->controller == MODEL_SUBMISSIONS) {
		m->card[0].wake_ns = 0;
	}
	return 0;
}

int cgpu_model_run(const struct cgpu_model_config *config,
		   const struct cgpu_model_tenant *tenants, uint32_t count,
		   uint32_t *useful, uint32_t *held, uint32_t *backlog, uint32_t *lost,
		   uint64_t *used, uint64_t *slowest, struct cgpu_model_result *results,
		   struct cgpu_model_sample *samples, uint32_t room)
{
	struct cgpu_sched_stat stat;
	struct model *m;
	uint32_t i;
	int err;

	if (!config->cards || config->cards > MODEL_CARDS || count > MODEL_TENANTS ||
	    !config->bin_ns || config->changes > 8)
		return -EINVAL;
	for (i = 0; i < count; i++)
		if (tenants[i].card >= config->cards || tenants[i].groups > MODEL_GROUPS ||
		    tenants[i].channels > MODEL_CHANNELS ||
		    (tenants[i].kind == MODEL_SERVER &&
		     (tenants[i].groups != 1 || !tenants[i].steps || !tenants[i].pieces)) ||
		    tenants[i].job >= MODEL_JOBS || (tenants[i].job && !tenants[i].reduce_ns))
			return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	memset(results, 0, config->cards * sizeof(*results));
	m->config = config;
	m->tenants = tenants;
	m->count = count;
	m->useful = useful;
	m->held = held;
	m->backlog = backlog;
	m->lost = lost;
	m->samples = samples;
	m->room = room;
	m->open_ns = config->open_call_ns ? config->open_call_ns : OPEN_NS;
	m->shut_ns = config->shut_call_ns ? config->shut_call_ns : SHUT_NS;
	m->bins = config->duration_ns / config->bin_ns;
	m->random = config->seed * 0x9e3779b97f4a7c15ULL + 0x1234567;
	for (i = 0; i < config->cards; i++)
		m->card[i].result = &results[i];
	err = setup(m);
	if (!err)
		loop(m);
	results[0].samples = m->sampled;
	for (i = 0; i < config->cards; i++) {
		if (!err && m->card[i].log.ring)
			read_log(m, &m->card[i]);
		model_log_close(&m->card[i].log);
		results[i].failures = m->card[i].sched.calls.failures + m->card[i].recent.failures;
		if (!results[i].period_ns)
			results[i].period_ns = is_recent(m) ? m->card[i].recent.period_ns :
						      m->card[i].sched.plan.period_ns;
	}
	for (i = 0; i < count; i++) {
		cgpu_sched_stat(&m->card[tenants[i].card].sched, i, m->now_ns, &stat);
		used[i] = is_recent(m) ? m->card[tenants[i].card].recent.book.entry[i].ever_ns :
					 stat.used_ns;
		slowest[i] = UINT64_MAX;
		if (!m->tenant[i].gate)
			results[tenants[i].card].shut_at_end = true;
	}
	for (i = 0; i < m->groups; i++)
		if (m->group[i].done_ns < slowest[m->group[i].tenant])
			slowest[m->group[i].tenant] = m->group[i].done_ns;
	free(m);
	return err;
}

uint64_t cgpu_model_decision_ns(uint32_t count, uint32_t periods)
{
	struct cgpu_policy_member member = { .weight = 1 };
	struct cgpu_sched_action out[CGPU_SCHED_ACTIONS];
	struct cgpu_sched *s = malloc(sizeof(*s));
	struct timespec from, to;
	uint64_t now = 0, wake = 0;
	uint32_t i, n;

	if (!s)
		return 0;
	cgpu_sched_init(s, 0);
	(void)cgpu_sched_card(s, CGPU_POLICY_AVERAGE, count, 5000, 0);
	for (i = 0; i < count; i++) {
		(void)cgpu_sched_set(s, i, &member, 0);
		cgpu_sched_open(s, i, true, 1, 0);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
	while (now < periods * s->plan.period_ns) {
		n = cgpu_sched_tick(s, now, out, &wake);
		for (i = 0; i < n; i++, now += 300000)
			cgpu_sched_done(s, &out[i], now, now + 300000, 0);
		if (!n)
			now = wake > now ? wake : now + 1000;
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
	free(s);
	return (uint64_t)((to.tv_sec - from.tv_sec) * 1000000000LL + to.tv_nsec - from.tv_nsec) /
	       periods;
}
