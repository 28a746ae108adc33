import { createClient } from '/client.js'

/** The session is a cookie of this site: no script can read it. */
export const client = createClient({ auth: { mode: 'cookie' } })

/** Closed when another page is shown. */
const open = new Set()

/** Rows of this page: `draw` is called with them now and after each change. */
export function follow(live, draw) {
  open.add(live)
  live.subscribe(() => draw(live.view))
  draw(live.view)
  return live
}

export function unfollow(live) {
  live.close()
  open.delete(live)
}

export function unfollowAll() {
  for (const live of open) unfollow(live)
}
