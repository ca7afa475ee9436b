// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/tree/server.h"
#include "core/tree/text.h"

static const char *const kinds[CGPU_SERVER_FATE_COUNT] = {
	[CGPU_SERVER_STARTED] = "server_started",
	[CGPU_SERVER_ENDED] = "server_ended",
	[CGPU_SERVER_DIED] = "server_died",
	[CGPU_SERVER_LOST] = "server_lost",
	[CGPU_SERVER_KILLED] = "killed",
};

void cgpu_server_line(const struct cgpu_server_news *news, const char *leader,
		      char line[CGPU_SERVER_LINE])
{
	struct cgpu_text text = { .buf = line, .size = CGPU_SERVER_LINE - 1 };

	cgpu_put_string(&text, kinds[news->fate]);
	cgpu_put_string(&text, " id=");
	cgpu_put_string(&text, news->member[0] ? news->member : leader);
	cgpu_put_string(&text, " group=");
	cgpu_put_string(&text, leader);
	cgpu_put_value(&text, " pid=", news->pid);
	if (news->after[0]) {
		cgpu_put_string(&text, " after=");
		cgpu_put_string(&text, news->after);
	}
	if (news->fate == CGPU_SERVER_KILLED)
		cgpu_put_string(&text, " its MPS server has ended");
	line[text.used] = 0;
}
