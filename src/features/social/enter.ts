import type { FastifyRequest } from 'fastify'
import { AppError } from '../../errors.ts'
import { commit } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { checkMaySignIn } from '../auth/login.ts'
import { type Answer, membershipOf, signIn } from '../auth/sign-in.ts'
import { type Identity, linkedAccount } from './link.ts'
import type { Journey } from './state.ts'

/** The session that is wanted. */
type Wanted = Pick<Journey, 'authMode' | 'type' | 'tenantId'>

/** Signs an identity in: finds or makes its account and ends like every first factor. One transaction. 403 where it may not. */
export async function enter(rt: Runtime, request: FastifyRequest, identity: Identity, wanted: Wanted): Promise<Answer> {
  const answer = await commit(rt, actorOf(request), async (tx) => {
    const { account, events } = await linkedAccount(rt, tx, identity)
    checkMaySignIn(rt, account)
    const membership = await membershipOf(rt, tx, account.id, wanted.tenantId ?? undefined)
    const { authMode, type } = wanted
    const entered = await signIn(rt, tx, request, { account, membership, type, authMode })
    return { ...entered, events: [...events, ...(entered.events ?? [])] }
  })
  if (answer === undefined) throw new AppError(403, 'The account can not be signed in to')
  return answer
}
