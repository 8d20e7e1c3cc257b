/* question.h: requests for votes to members of the group. Main thread only. */
#pragma once
#include "repl/quorum/protocol/record.h"

/* Sends the request to the member, unless the same request is on its way. quorum_machine_voted() gets the answer. */
void quorum_question_send(const struct quorum_member *member, const struct quorum_vote_request *request);
