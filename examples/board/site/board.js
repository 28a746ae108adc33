import { client, follow } from './client.js'
import { attempt, form, h, say, showRows } from './dom.js'
import { go, me } from './main.js'
import { openTask } from './task.js'
import { members, nameOf } from './team.js'

const lanes = { todo: 'To do', doing: 'Doing', done: 'Done' }

/** The tasks of a project, as they are: whoever changes one, the board shows it. */
export async function projectPage(main, project) {
  const team = await members()
  const mayWrite = me.role.name !== 'guest'
  const tasks = client.live({ collection: 'task', filter: { project_Id: project }, sort: ['due', 'createdAt'] })

  const move = (id, status) => attempt(() => tasks.update(id, { status }))
  const card = (task) => {
    const element = h(
      'li',
      { className: 'card', draggable: mayWrite },
      h('button', { className: 'title', onclick: () => openTask(task.id, tasks, team) }, task.title),
      h(
        'p',
        { className: 'quiet' },
        task.assignee_Id ? nameOf(team.get(task.assignee_Id)) : 'Nobody yet',
        task.due ? ` · ${task.due}` : '',
      ),
      mayWrite &&
        h(
          'select',
          { 'aria-label': `State of ${task.title}`, onchange: ({ target }) => move(task.id, target.value) },
          ...Object.entries(lanes).map(([value, text]) =>
            h('option', { value, selected: value === task.status }, text),
          ),
        ),
    )
    element.addEventListener('dragstart', ({ dataTransfer }) => dataTransfer.setData('text/plain', task.id))
    return element
  }

  const columns = Object.entries(lanes).map(([status, text]) => {
    const list = h('ul', { 'aria-label': text })
    const lane = h('section', { className: 'lane' }, h('h2', {}, text), list)
    lane.addEventListener('dragover', (event) => event.preventDefault())
    lane.addEventListener('drop', ({ dataTransfer }) => move(dataTransfer.getData('text/plain'), status))
    return { status, list, lane }
  })
  const title = h('input', { name: 'title', required: true, placeholder: 'New task', 'aria-label': 'New task' })
  const add = form([title], 'Add', async (values, element) => {
    element.reset()
    await tasks.create({ ...values, project_Id: project, status: 'todo' })
  })
  if (mayWrite) columns[0].lane.append(add)

  const state = h('p', { className: 'quiet', role: 'status' })
  main.replaceChildren(
    dashboard(project, team),
    h('div', { className: 'lanes' }, ...columns.map(({ lane }) => lane)),
    h('footer', {}, mayWrite && importer(project), me.role.name === 'owner' && remover(project), state),
  )
  follow(tasks, ({ rows, status, error }) => {
    state.textContent = status === 'live' ? 'Up to date' : (error?.message ?? 'Connecting…')
    for (const column of columns)
      showRows(
        column.list,
        rows.filter((task) => task.status === column.status),
        card,
      )
  })
}

/** How many tasks are in which state and with whom: one report, evaluated again by the server when a task changes. */
function dashboard(project, team) {
  const list = h('dl', { className: 'dashboard', 'aria-label': 'Dashboard' })
  const report = client.liveReport({
    collection: 'task',
    aggregate: { tasks: { function: 'count', field: '*' } },
    groupBy: ['status', 'assignee_Id'],
    filter: { project_Id: project },
  })
  follow(report, ({ rows }) => {
    const sum = (chosen) => chosen.reduce((total, { tasks }) => total + Number(tasks), 0)
    const all = sum(rows)
    const figure = (name, count) =>
      h(
        'div',
        {},
        h('dt', {}, name),
        h('dd', {}, String(count), h('progress', { max: Math.max(1, all), value: count })),
      )
    const open = rows.filter(({ status }) => status !== 'done')
    const people = [...new Set(open.map(({ assignee_Id }) => assignee_Id))]
    list.replaceChildren(
      ...Object.entries(lanes).map(([status, text]) => figure(text, sum(rows.filter((row) => row.status === status)))),
      ...people.map((id) =>
        figure(id ? nameOf(team.get(id)) : 'Nobody yet', sum(open.filter(({ assignee_Id }) => assignee_Id === id))),
      ),
    )
  })
  return list
}

/** With its tasks, and their comments and attachments. An administrator can take it back. */
function remover(project) {
  const remove = async () => {
    await client.items('project').delete(project)
    await go('/')
  }
  return h(
    'button',
    { onclick: () => confirm('Delete this project with its tasks?') && attempt(remove) },
    'Delete project',
  )
}

/** A CSV file with a header of `title`, `status`, `due`, `description`: all of its rows, or none. */
function importer(project) {
  const input = h('input', { type: 'file', accept: '.csv', 'aria-label': 'Import CSV' })
  input.addEventListener('change', () =>
    attempt(async () => {
      const body = new FormData()
      body.append(
        'csvFile',
        new Blob([inProject(await input.files[0].text(), project)], { type: 'text/csv' }),
        'tasks.csv',
      )
      input.value = ''
      try {
        say((await client.request('/items/task/import-csv', { method: 'POST', body })).message)
      } catch (error) {
        const [first] = error.details?.results?.errors ?? []
        say(first === undefined ? error.message : `Row ${first.row}: ${first.error}. Nothing was imported.`)
      }
    }),
  )
  return h('label', {}, 'Import CSV ', input)
}

/** The same rows with one more cell, which says the project. A line break within quotes ends no row. */
function inProject(csv, project) {
  let isQuoted = false
  let isFirst = true
  const cell = () => {
    const text = isFirst ? ',project_Id' : `,${project}`
    isFirst = false
    return text
  }
  return (
    csv.trimEnd().replaceAll(/"|\r?\n/g, (found) => {
      if (found === '"') isQuoted = !isQuoted
      return found === '"' || isQuoted ? found : `${cell()}\n`
    }) + cell()
  )
}
