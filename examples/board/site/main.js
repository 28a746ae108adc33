import { projectPage } from './board.js'
import { client, unfollowAll } from './client.js'
import { attempt, form, h, say } from './dom.js'
import { acceptInvitation, signInPage } from './sign-in.js'
import { teamPage } from './team.js'

const header = document.getElementById('header')
const main = document.getElementById('main')

/** Who uses the board: the user, the role and the team of the session. */
export let me

export function go(path) {
  history.pushState(null, '', `/board${path}`)
  return render()
}

window.addEventListener('popstate', () => render())
document.addEventListener('click', (event) => {
  const link = event.target.closest?.('a[href^="/board"]')
  if (link === null || link === undefined || event.metaKey || event.ctrlKey) return
  event.preventDefault()
  go(link.getAttribute('href').slice('/board'.length))
})

/** Draws the page of the address. */
export async function render() {
  unfollowAll()
  const [page, id] = location.pathname.slice('/board/'.length).split('/')
  const invitation = page === 'accept-invite' ? new URLSearchParams(location.search).get('token') : null
  me = await client.auth.me().catch((error) => {
    if (error.status !== 401) say(error.message)
    return undefined
  })
  if (me === undefined) {
    header.replaceChildren()
    return signInPage(main, invitation)
  }
  if (invitation !== null) return acceptInvitation(main, invitation)
  await attempt(async () => {
    const { tenants } = await client.request('/auth/tenants')
    const { data: projects } = await client.items('project').list({ fields: ['id', 'name'], sort: ['name'], limit: -1 })
    drawHeader(tenants, projects, id)
    if (page === 'team') await teamPage(main)
    else if (page === 'project' && projects.some((project) => project.id === id)) await projectPage(main, id)
    else if (projects.length > 0 && page !== 'new') await go(`/project/${projects[0].id}`)
    else newProject()
  })
}

/** Somebody may be in several teams; a session is in one of them. */
function teamChoice(tenants) {
  const team = h(
    'select',
    { 'aria-label': 'Team' },
    ...tenants.map(({ id, name }) => h('option', { value: id, selected: id === me.tenant }, name)),
  )
  const change = () => attempt(() => client.auth.switchTenant(team.value).then(() => location.assign('/board/')))
  team.addEventListener('change', change)
  return team
}

function drawHeader(tenants, projects, current) {
  const results = h('ul', { className: 'results' })
  const search = h('input', { type: 'search', placeholder: 'Search tasks', 'aria-label': 'Search tasks' })
  search.addEventListener('input', () => attempt(() => find(search.value.trim(), results)))
  header.replaceChildren(
    tenants.length > 1 ? teamChoice(tenants) : h('strong', {}, tenants[0]?.name ?? 'Board'),
    h(
      'nav',
      { 'aria-label': 'Projects' },
      projects.map(({ id, name }) =>
        h('a', { href: `/board/project/${id}`, ...(id === current && { 'aria-current': 'page' }) }, name),
      ),
      me.role.name === 'owner' && h('a', { href: '/board/new' }, '+ Project'),
      h('a', { href: '/board/team' }, 'Team'),
    ),
    h('div', { className: 'search' }, search, results),
    h('button', { onclick: () => attempt(() => client.auth.logout().finally(() => go('/'))) }, 'Sign out'),
  )
}

/** Tasks of all projects, while somebody types. */
async function find(text, results) {
  results.wanted = text
  if (text === '') return results.replaceChildren()
  const { data } = await client.items('task').list({
    fields: ['id', 'title', 'project.id', 'project.name'],
    search: text,
    limit: 8,
  })
  if (results.wanted !== text) return
  results.replaceChildren(
    ...data.map(({ title, project }) =>
      h('li', {}, h('a', { href: `/board/project/${project.id}` }, title, h('small', {}, ` ${project.name}`))),
    ),
  )
}

function newProject() {
  if (me.role.name !== 'owner') return main.replaceChildren(h('p', {}, 'Your team has no projects yet.'))
  const name = h('input', {
    name: 'name',
    required: true,
    placeholder: 'Name of the project',
    'aria-label': 'Name of the project',
  })
  main.replaceChildren(
    h('h1', {}, 'New project'),
    form([name], 'Create', async (values) => go(`/project/${await client.items('project').create(values)}`)),
  )
}

render()
