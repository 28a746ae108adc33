import { createElement as h, useState } from 'react'
import { createRoot } from 'react-dom/client'
import { createClient } from '../../clients/client.ts'
import { useLive } from '../../clients/react.ts'

/** A page of React that shows the cards of a board, for `client.test.ts`. It takes the boards from its element, and a token where it is to sign nobody in. */

declare const document: any
declare const location: { readonly origin: string }

const element = document.getElementById('cards')
const { boards, token } = JSON.parse(element.textContent) as { boards: string[]; token?: string }
const auth = token === undefined ? undefined : { token }
const client = createClient({ url: location.origin, keepsRows: false, ...(auth && { auth }) })

/** Each drawing: the number of the board, what is shown, and whether it can be written to. */
const drawn: [board: number, text: string, isOpen: boolean][] = []
Object.assign(globalThis, { drawn, client })

function Cards() {
  const [board, setBoard] = useState(boards[0]!)
  // A new object each time, as in any component: equal ones go on.
  const { rows, status, live } = useLive(client, { collection: 'card', filter: { board_Id: board }, sort: ['title'] })
  const titles = rows.map(({ title }) => String(title)).join()
  drawn.push([boards.indexOf(board), `${status}: ${titles}`, live !== undefined])
  return h(
    'div',
    {},
    h('output', {}, `${status}: ${titles}`),
    h('button', { type: 'button', id: 'add', onClick: () => live?.create({ title: 'by React', board_Id: board }) }),
    h('button', { type: 'button', id: 'other', onClick: () => setBoard(boards[1]!) }),
  )
}

const root = createRoot(element)
root.render(h(Cards))
element.addEventListener('leave', () => root.unmount())
