import { client, follow, unfollow } from './client.js'
import { attempt, form, h, say, showRows } from './dom.js'
import { me } from './main.js'
import { nameOf } from './team.js'

const time = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' })

/** A task with its fields, comments and attachments; both lists follow what others add. */
export function openTask(id, tasks, team) {
  const task = tasks.view.rows.find((row) => row.id === id)
  const mayWrite = me.role.name !== 'guest'
  const comments = client.live({ collection: 'comment', filter: { task_Id: id }, sort: ['createdAt'] })
  const attachments = client.live({ collection: 'attachment', filter: { task_Id: id }, sort: ['createdAt'] })

  const dialog = h(
    'dialog',
    { 'aria-label': task.title },
    h('button', { className: 'close', 'aria-label': 'Close', onclick: () => dialog.close() }, '×'),
    mayWrite ? editor(task, tasks, team, () => dialog.close()) : h('h2', {}, task.title),
    h('h3', {}, 'Attachments'),
    attachmentList(attachments),
    mayWrite && uploader(id, attachments),
    h('h3', {}, 'Comments'),
    commentList(comments, team),
    form(
      [h('textarea', { name: 'text', required: true, rows: 2, 'aria-label': 'Comment' })],
      'Comment',
      async ({ text }, element) => {
        element.reset()
        await comments.create({ text, task_Id: id })
      },
    ),
  )
  dialog.addEventListener('close', () => {
    unfollow(comments)
    unfollow(attachments)
    dialog.remove()
  })
  document.body.append(dialog)
  dialog.showModal()
}

/** What two people change at the same time is not lost: the second one is told. */
function editor(task, tasks, team, close) {
  const people = [...team.values()].map((member) =>
    h('option', { value: member.user.id, selected: member.user.id === task.assignee_Id }, nameOf(member)),
  )
  const fields = [
    h('label', {}, 'Title', h('input', { name: 'title', value: task.title, required: true })),
    h('label', {}, 'Description', h('textarea', { name: 'description', value: task.description ?? '', rows: 4 })),
    h(
      'label',
      {},
      'Assignee',
      h('select', { name: 'assignee_Id' }, h('option', { value: '' }, 'Nobody yet'), ...people),
    ),
    h('label', {}, 'Due', h('input', { name: 'due', type: 'date', value: task.due ?? '' })),
  ]
  const read = client.items('task').readVersion(task.id)
  const element = form(fields, 'Save', async ({ title, description, assignee_Id, due }) => {
    const { etag } = await read
    const change = { title, description: description || null, assignee_Id: assignee_Id || null, due: due || null }
    try {
      await client.items('task').update(task.id, change, { ifMatch: etag })
    } catch (error) {
      if (error.status !== 412) throw error
      return say('Somebody has changed this task meanwhile. Open it again to see how it is now.')
    }
    close()
  })
  const remove = () => attempt(() => tasks.delete(task.id)).then(close)
  element.append(h('button', { type: 'button', onclick: remove }, 'Delete'))
  return element
}

function commentList(comments, team) {
  const list = h('ul', { className: 'comments', 'aria-label': 'Comments' })
  follow(comments, ({ rows }) =>
    showRows(list, rows, ({ text, userCreated_Id, createdAt }) =>
      h(
        'li',
        {},
        h(
          'small',
          {},
          createdAt ? `${nameOf(team.get(userCreated_Id))} · ${time.format(new Date(createdAt))}` : 'Sending…',
        ),
        h('p', {}, text),
      ),
    ),
  )
  return list
}

function attachmentList(attachments) {
  const list = h('ul', { className: 'attachments', 'aria-label': 'Attachments' })
  follow(attachments, ({ rows }) =>
    showRows(list, rows, ({ id, name, file_Id }) => {
      const thumbnail = h('img', {
        src: client.files.address(file_Id, { width: 96, height: 96, fit: 'cover' }),
        alt: '',
      })
      // What is no picture has none.
      thumbnail.addEventListener('error', () => thumbnail.remove())
      const link = h('a', { href: client.files.address(file_Id, { download: true }), download: name }, name)
      const remove = h(
        'button',
        { 'aria-label': `Remove ${name}`, onclick: () => attempt(() => attachments.delete(id)) },
        '×',
      )
      return h('li', {}, thumbnail, link, me.role.name !== 'guest' && remove)
    }),
  )
  return list
}

/** Uploads go in pieces, and on after a break. */
function uploader(task, attachments) {
  const bar = h('progress', { max: 1, value: 0, hidden: true })
  const input = h('input', { type: 'file', multiple: true, 'aria-label': 'Attach files' })
  input.addEventListener('change', () =>
    attempt(async () => {
      const chosen = [...input.files]
      input.value = ''
      bar.hidden = false
      try {
        for (const file of chosen) {
          const file_Id = await client.files.upload(file, {
            onProgress: (share) => Object.assign(bar, { value: share }),
          })
          await attachments.create({ name: file.name, file_Id, task_Id: task })
        }
      } finally {
        bar.hidden = true
      }
    }),
  )
  return h('label', {}, 'Attach files ', input, bar)
}
