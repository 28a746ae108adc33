import { connect } from '/console/extension.js'

const host = await connect()
const add = document.querySelector('#add')
const title = document.querySelector('#title')
const problem = document.querySelector('#problem')

/** Does something, and says what went wrong where it was asked for. */
async function attempt(work) {
  problem.textContent = ''
  try {
    await work()
  } catch (error) {
    problem.textContent = error.message
  }
}

async function show() {
  const query = { fields: ['id', 'title', 'colour'], sort: ['title'], count: true }
  const { data, totalCount } = await host.items.list('note', query)
  document.querySelector('#count').textContent = `${totalCount} notes`
  document.querySelector('#rows').replaceChildren(...data.map(rowOf))
}

function rowOf({ id, title: name, colour }) {
  const input = element('input', { value: name ?? '', ariaLabel: `Title of ${name}` })
  input.addEventListener('change', () =>
    attempt(() => host.items.update('note', id, { title: input.value }).then(show)),
  )
  const swatch = element('span', { className: 'swatch' })
  swatch.style.backgroundColor = colour ?? 'transparent'
  const open = element('button', { textContent: 'Open', ariaLabel: `Open ${name}` })
  open.addEventListener('click', () => attempt(() => host.navigate(`/data/note/${id}`)))
  const remove = element('button', { textContent: 'Delete', ariaLabel: `Delete ${name}` })
  remove.addEventListener('click', () => attempt(() => host.items.delete('note', id).then(show)))
  const row = element('tr')
  for (const cell of [[input], [swatch, colour ?? '—'], [open, ' ', remove]]) {
    const td = element('td')
    td.append(...cell)
    row.append(td)
  }
  return row
}

const element = (name, members = {}) => Object.assign(document.createElement(name), members)

// A sandbox submits no forms.
const create = () =>
  attempt(async () => {
    await host.items.create('note', { title: title.value })
    title.value = ''
    await show()
  })
add.addEventListener('click', create)
title.addEventListener('keydown', ({ key }) => key === 'Enter' && create())
await attempt(show)
