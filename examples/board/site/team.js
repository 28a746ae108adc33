import { client } from './client.js'
import { attempt, field, form, h, say } from './dom.js'
import { me } from './main.js'

/** The members of the team by their user's id: `{ id, user, role }`. */
export async function members() {
  const { data } = await client.items('svc_UserRole').list({
    fields: ['id', 'role_Id', 'user.id', 'user.firstName', 'user.lastName', 'role.name'],
    limit: -1,
  })
  return new Map(data.map((member) => [member.user.id, member]))
}

export const nameOf = (member) =>
  member === undefined ? 'Somebody' : `${member.user.firstName} ${member.user.lastName}`

/** Who is in the team; its owners invite, change roles and remove. */
export async function teamPage(main) {
  const isOwner = me.role.name === 'owner'
  const roles = isOwner ? (await client.items('svc_Role').list({ fields: ['id', 'name'], sort: ['name'] })).data : []
  const choice = (selected, properties) =>
    h('select', properties, ...roles.map(({ id, name }) => h('option', { value: id, selected: id === selected }, name)))
  const draw = async () => {
    const rows = [...(await members()).values()]
    list.replaceChildren(
      ...rows.map((member) => {
        const mayChange = isOwner && member.user.id !== me.user.id
        const role = mayChange
          ? choice(member.role_Id, {
              'aria-label': `Role of ${nameOf(member)}`,
              onchange: ({ target }) => change(member, target.value),
            })
          : member.role.name
        return h('li', {}, nameOf(member), role, mayChange && h('button', { onclick: () => remove(member) }, 'Remove'))
      }),
    )
  }
  const change = (member, role_Id) =>
    attempt(() => client.items('svc_UserRole').update(member.id, { role_Id })).then(draw)
  const remove = (member) => attempt(() => client.items('svc_UserRole').delete(member.id)).then(draw)

  const list = h('ul', { className: 'team' })
  const invite = form(
    [
      field('E-mail', { name: 'email', type: 'email' }),
      h('label', {}, 'Role', choice(roles.find(({ name }) => name === 'member')?.id, { name: 'role_Id' })),
    ],
    'Invite',
    async (values, element) => {
      await client.request('/auth/invite', { method: 'POST', body: values })
      element.reset()
      say(`An invitation is on its way to ${values.email}`)
    },
  )
  main.replaceChildren(h('h1', {}, 'Team'), list, ...(isOwner ? [h('h2', {}, 'Invite somebody'), invite] : []))
  await draw()
}
