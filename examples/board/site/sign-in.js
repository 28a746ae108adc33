import { client } from './client.js'
import { field, form, h } from './dom.js'
import { go } from './main.js'

const email = () => field('E-mail', { name: 'email', type: 'email', autocomplete: 'username' })
const password = (autocomplete) => field('Password', { name: 'password', type: 'password', autocomplete, minLength: 8 })

/** A user who registers founds a team, or joins the one that the invitation names. */
export function signInPage(main, invitation) {
  const names = [
    field('First name', { name: 'firstName', autocomplete: 'given-name' }),
    field('Last name', { name: 'lastName', autocomplete: 'family-name' }),
  ]
  const team = invitation === null ? [field('Team', { name: 'team' })] : []
  main.replaceChildren(
    h(
      'div',
      { className: 'columns' },
      h(
        'section',
        {},
        h('h1', {}, 'Sign in'),
        form([email(), password('current-password')], 'Sign in', async (values) => {
          await client.auth.login({ ...values, ...(invitation !== null && { inviteToken: invitation }) })
          await go('/')
        }),
      ),
      h(
        'section',
        {},
        h('h1', {}, invitation === null ? 'Start a team' : 'Join the team'),
        form([...names, ...team, email(), password('new-password')], 'Register', async ({ team, ...values }) => {
          const place =
            invitation === null ? { roleName: 'owner', tenant: { name: team } } : { inviteToken: invitation }
          await client.auth.register({ ...values, ...place })
          await go('/')
        }),
      ),
    ),
  )
}

/** For somebody who is signed in already. */
export function acceptInvitation(main, inviteToken) {
  main.replaceChildren(
    h('h1', {}, 'You are invited'),
    form([], 'Join the team', async () => {
      await client.request('/auth/accept-invite', { method: 'POST', body: { inviteToken } })
      await go('/')
    }),
  )
}
